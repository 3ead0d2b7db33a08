"""The folder that a server is bound to: names go out and come in, and nothing outside is ever opened."""

from __future__ import annotations

import os
from pathlib import Path

from verl_video_tools.core.errors import UsageError, VideoNotFoundError
from verl_video_tools.data.video_identity import VIDEO_SUFFIXES


class VideoFolder:
    """Videos below one folder, named by their path in it, with `/` between folders.

    Raises:
        UsageError: there is no such folder.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"there is no folder {str(root)!r}; give the one that holds the videos")
        self._root = root.resolve()

    def names(self, contains: str = "") -> list[str]:
        """Names of all videos whose name contains a text, whatever its case; sorted.

        Links to folders are not followed, links to files outside and names that are no UTF-8 are left out.
        """
        names = []
        for folder, _, files in os.walk(self._root):
            for file in files:
                name = (Path(folder) / file).relative_to(self._root).as_posix()
                if contains.casefold() in name.casefold() and self._is_shown(name):
                    names.append(name)
        return sorted(names)

    def path_of(self, name: str) -> Path:
        """The file of a video, links resolved.

        Raises:
            VideoNotFoundError: no video of the folder has this name. Whether another file has is not said.
        """
        path = self._inside(name)
        if path is None or not os.path.isfile(path):
            raise VideoNotFoundError(
                f"the folder has no video {name!r:.200}; give a name as list_videos tells it, relative to the folder"
            )
        return path

    def _is_shown(self, name: str) -> bool:
        try:
            name.encode()
        except UnicodeEncodeError:
            return False
        path = self._inside(name)
        return path is not None and os.path.isfile(path)

    def _inside(self, name: str) -> Path | None:
        """Where a name leads, if that is below the folder and called like a video, there as well as here."""
        if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
            return None
        try:
            path = (self._root / name).resolve()
        except (OSError, RuntimeError):  # a loop of links, a name too long
            return None
        # Playlists do not count as videos: they would name further files to open.
        called_video = {Path(name).suffix.lower(), path.suffix.lower()} <= VIDEO_SUFFIXES
        return path if called_video and path.is_relative_to(self._root) else None
