"""Opening files in a child process, for checks of data: a file may crash FFmpeg, or keep it busy for hours.

Run as a program, this is the child: JSON lines ``{"path": str, "seconds": float}`` on standard input, each answered by
``{"info": {...}}`` or ``{"error": str}``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from verl_video_tools.core.errors import UnreadableVideoError, VideoError
from verl_video_tools.core.types import VideoInfo
from verl_video_tools.video.child_process import ChildDied, ChildProcess
from verl_video_tools.video.source import Deadline
from verl_video_tools.video.video import Video

MAX_CHILD_BYTES = 16 << 30
"""Address space of the child, most of which Python's libraries only reserve."""

START_SECONDS = 60.0
"""Time for the child to start."""


class IsolatedOpener:
    """Opens files in a child, which is started again after a file that ended it. Not thread-safe."""

    def __init__(self) -> None:
        self._child: ChildProcess | None = None

    def info(self, path: str, deadline_seconds: float) -> VideoInfo:
        """Facts about a video.

        Raises:
            VideoError: it cannot be read, or not in time, or it ended the process that tried.
        """
        if self._child is None:
            self._child = ChildProcess([sys.executable, "-P", "-m", __name__])
        deadline = Deadline(START_SECONDS + deadline_seconds, f"{path}: open")
        try:
            answer = self._child.ask({"path": path, "seconds": deadline_seconds}, deadline)
        except (ChildDied, VideoError) as error:
            self.close()
            if isinstance(error, ChildDied):
                raise UnreadableVideoError(f"{path}: opening it ended the process that tried: {error}") from error
            raise
        if "error" in answer:
            raise UnreadableVideoError(answer["error"])
        return VideoInfo(**answer["info"])

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints may get between the answers
    resource.setrlimit(resource.RLIMIT_AS, (MAX_CHILD_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            with Video(request["path"], request["seconds"]) as video:
                answer = {"info": video.info.to_dict()}
        except VideoError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
