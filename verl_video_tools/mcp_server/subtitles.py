"""Subtitles of the served videos: files of a folder of their own, under the videos' names."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Subtitle
from verl_video_tools.data.formats.subtitles import read_srt


class SubtitleFolder:
    """SubRip files: `deeper/clip.srt` belongs to the video `deeper/clip.mp4`. Nothing outside of the folder is opened.

    Raises:
        UsageError: there is no such folder.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"there is no folder {str(root)!r}; give the one that holds the subtitles")
        self._root = root.resolve()

    def of_video(self, name: str) -> tuple[Subtitle, ...]:
        """The captions of a video in order of the file; none where it has no file, or one that cannot be read.

        Args:
            name: of a video that is served, which has been checked to be one.
        """
        path = (self._root / PurePosixPath(name).with_suffix(".srt")).resolve()
        if not path.is_relative_to(self._root) or path.suffix != ".srt" or not path.is_file():
            return ()
        try:
            return tuple(read_srt(path))
        except RowError:
            return ()
