"""Opening files in a child process, for checks of data: a file may crash FFmpeg, or keep it busy for hours."""

from __future__ import annotations

import multiprocessing
import resource
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from verl_video_tools.core.errors import UnreadableVideoError, VideoError
from verl_video_tools.core.types import VideoInfo
from verl_video_tools.video.source import Deadline
from verl_video_tools.video.video import Video

MAX_CHILD_BYTES = 16 << 30
"""Address space of the child, most of which Python's libraries only reserve."""

START_SECONDS = 60.0
"""Time for the child to start."""


class IsolatedOpener:
    """Opens files in a child, which is started again after a file that ended it. Not thread-safe."""

    def __init__(self) -> None:
        self._child: tuple[BaseProcess, Connection] | None = None

    def info(self, path: str, deadline_seconds: float) -> VideoInfo:
        """Facts about a video.

        Raises:
            VideoError: it cannot be read, or not in time, or it ended the process that tried.
        """
        if self._child is None:
            self._child = _start_child()
        process, connection = self._child
        try:
            connection.send((path, deadline_seconds))
            if not connection.poll(START_SECONDS + deadline_seconds):
                self.close()
                raise Deadline(deadline_seconds, f"{path}: open").error()
            answer: VideoInfo | str = connection.recv()
        except (EOFError, ConnectionError) as error:
            process.join()
            code = process.exitcode or 0
            self.close()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            raise UnreadableVideoError(f"{path}: opening it ended the process that tried: it {how}") from error
        if isinstance(answer, str):
            raise UnreadableVideoError(answer)
        return answer

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            process, connection = self._child
            process.kill()
            process.join()
            connection.close()
            self._child = None


def _start_child() -> tuple[BaseProcess, Connection]:
    # Spawned: a forked child would have the parent's threads' locks, and its memory.
    context = multiprocessing.get_context("spawn")
    connection, connection_of_child = context.Pipe()
    process = context.Process(target=_serve, args=(connection_of_child,), daemon=True)
    process.start()
    connection_of_child.close()  # so that the end of the child is the end of the connection
    return process, connection


def _serve(connection: Connection) -> None:
    """The child process: answers each path and time with facts about the video, or with the text of an error."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_CHILD_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    while True:
        try:
            path, deadline_seconds = connection.recv()
        except EOFError:  # the parent has ended
            return
        try:
            with Video(path, deadline_seconds) as video:
                connection.send(video.info)
        except VideoError as error:
            connection.send(str(error))
