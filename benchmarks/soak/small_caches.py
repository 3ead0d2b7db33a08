"""Imported by every process of a soak (VERL_USE_EXTERNAL_MODULES): its caches are small, so that they are full soon.

A cache that fills for hours looks like a leak. The recipe's other caches are made small by variables (`run.py`); the
images that a training process has fetched last, 1 GiB of them, have none.
"""

from verl_video_tools.verl_plugin.post_import import import_after

import_after("verl_video_tools.verl_plugin.images", "benchmarks.soak.small_image_cache")
