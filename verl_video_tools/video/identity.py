"""Which file, in which state: what frames and readers are shared by."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from verl_video_tools.core.errors import UnreadableVideoError, VideoNotFoundError
from verl_video_tools.core.sample import read_clip


class FileIdentity(NamedTuple):
    """A file as it was at one time; a file that is written again becomes another one."""

    path: str
    """Absolute, symbolic links resolved."""
    size_bytes: int
    modified_ns: int
    clip: str = ""
    """Which part of the file is meant, in words; empty: all of it."""

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, fit for a file name."""
        parts = self if self.clip else self[:3]
        return hashlib.sha256("\0".join(map(str, parts)).encode(errors="surrogateescape")).hexdigest()[:32]


def file_identity(path: str | os.PathLike[str]) -> FileIdentity:
    """Identity of the file that is at `path` now, or of a part of it (`core.sample`).

    Raises:
        VideoNotFoundError: there is no such file.
        UnreadableVideoError: the file system does not let us look, or the path can be none.
    """
    file, seconds = read_clip(path)
    try:
        resolved = Path(file).resolve()
        status = resolved.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise VideoNotFoundError(f"{path}: no such video file ({error.strerror})") from error
    except OSError as error:
        raise UnreadableVideoError(f"{path}: cannot be read ({error.strerror})") from error
    except (RuntimeError, ValueError) as error:  # a loop of symbolic links, before Python 3.13; a NUL in the path
        raise UnreadableVideoError(f"{path}: cannot be read ({error})") from error
    clip = "" if seconds is None else "{} to {}".format(*seconds)
    return FileIdentity(str(resolved), status.st_size, status.st_mtime_ns, clip)
