"""The fault `stale_weights`, of a whole run: from a step on the engine takes new weights for granted, and drops them.

    VERL_USE_EXTERNAL_MODULES=verl_video_tools.loop_check.stale_weights VVT_LOOP_CHECK_STALE_FROM=3

verl imports this module in every process, so it imports nothing heavy. It registers a replica with verl's name `vllm`
right after ours is registered, whose workers drop what they get.
"""

from __future__ import annotations

from verl_video_tools.verl_plugin.post_import import import_after

import_after("verl_video_tools.verl_plugin.platforms.vllm_replica", "verl_video_tools.loop_check.stale_registration")
