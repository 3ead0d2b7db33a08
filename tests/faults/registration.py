"""Import hook (`VERL_USE_EXTERNAL_MODULES=tests.faults.registration`): registers the trainer of the fault plan."""

from verl_video_tools.verl_plugin.post_import import import_after

import_after("verl_video_tools.verl_plugin.trainer", "tests.faults.trainer")
