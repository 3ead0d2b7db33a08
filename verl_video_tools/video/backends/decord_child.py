"""The program in which decord runs: one JSON line per request on standard input, an answer on standard output.

Run as a script, it imports nothing of this package. Requests are ``{"path": str, "limit_seconds": float}``, once, and
``{"index": int, "limit_seconds": float}``; answers carry ``error``, or what was asked. A picture's bytes follow its
answer. A request that takes longer than its limit ends the process, even if nobody is left to kill it.
"""

from __future__ import annotations

import json
import os
import signal
import sys


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints may get between the answers

    def answer(content: dict[str, object], picture: bytes = b"") -> None:
        answers.write(json.dumps(content).encode() + b"\n" + picture)
        answers.flush()

    video = None
    first_seconds = 0.0
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["limit_seconds"])  # its signal ends the process by default
        try:
            if video is None:
                import decord

                video = decord.VideoReader(request["path"], ctx=decord.cpu(0), num_threads=1)
                first_seconds = float(video.get_frame_timestamp([0])[0][0])
                answer({"num_frames": len(video)})
            else:
                index = request["index"]
                seconds = float(video.get_frame_timestamp([index])[0][0]) - first_seconds
                pixels_HWC = video[index].asnumpy()
                answer({"seconds": seconds, "shape": pixels_HWC.shape}, pixels_HWC.tobytes())
        except Exception as error:
            answer({"error": " ".join(str(error).split())})
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
