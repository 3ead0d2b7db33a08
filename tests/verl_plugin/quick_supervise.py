"""`verl_plugin.supervise`, which here waits a moment where it would wait seconds: for Ray's workers, and for readers.

python -m tests.verl_plugin.quick_supervise [OPTION ...] -- COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

from verl_video_tools.verl_plugin import console, supervise

if __name__ == "__main__":
    supervise._MODULE = "tests.verl_plugin.quick_supervise"  # the second supervisor is started by it
    supervise._LINGER_SECONDS = supervise._PATIENCE_SECONDS = console._SECONDS_FOR_THE_REST = 0.2
    supervise.main()
