"""The program that probes files for `probe_files`, in a process of its own, since a bad file may crash or hang it.

Requests are JSON lines ``{"path": str, "decode": bool, "deadline_seconds": float, "limit_seconds": float}`` on
standard input; answers are JSON lines. A request that takes longer than its limit ends the process, even if nobody is
left to kill it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys

from verl_video_tools.core.errors import VideoError
from verl_video_tools.video.probe import probe


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints may get between the answers
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["limit_seconds"])  # its signal ends the process by default
        try:
            found = probe(request["path"], request["deadline_seconds"], check_decoding=request["decode"])
            answer: dict[str, object] = {"probe": {**dataclasses.asdict(found), "info": found.info.to_dict()}}
        except VideoError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        except Exception as error:  # a bug of ours must not end the scan, either
            answer = {"error": type(error).__name__, "message": f"{request['path']}: {error}"}
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
