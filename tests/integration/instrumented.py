"""Import hook for tests: puts the instrumented replica in place of the CPU platform's, right after that one."""

from verl_video_tools.verl_plugin.post_import import import_after

import_after(
    "verl_video_tools.verl_plugin.platforms.vllm_replica", "tests.integration.instrumented_replica_registration"
)
