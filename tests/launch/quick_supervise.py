"""`launch.supervise`, which here waits a moment where it would wait seconds: for Ray's workers, and for readers.

python -m tests.launch.quick_supervise [--stop-file FILE] [--log FILE [--verbose]] -- COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path

from verl_video_tools.launch import console, supervise

if __name__ == "__main__":
    supervise._LINGER_SECONDS = supervise._MESSAGE_SECONDS = console._SECONDS_FOR_THE_REST = 0.2
    parser = argparse.ArgumentParser()
    parser.add_argument("--stop-file", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--patient", action="store_true", help="wait for readers as a run does")
    parser.add_argument("--threads", type=int, default=0, help="of the process, as libraries have them")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.patient:
        console._SECONDS_FOR_THE_REST = 5.0
    for _ in range(options.threads):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    shown = None if options.log is None else console.Console(options.log, options.verbose)
    sys.exit(supervise.supervise(options.command, options.stop_file, console=shown))
