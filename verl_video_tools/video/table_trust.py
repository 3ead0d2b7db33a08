"""Files whose own table of samples was found wrong after it had been believed: from then on packets alone count."""

from __future__ import annotations

from pathlib import Path

from verl_video_tools.core.errors import UnreadableVideoError, VideoError
from verl_video_tools.video.identity import FileIdentity, file_identity
from verl_video_tools.video.segments import TableContradicted

MAX_REMEMBERED = 100_000
"""Files; beyond it all are forgotten, and each is found out again when it is read."""

_distrusted: set[FileIdentity] = set()


def trusts_table(identity: FileIdentity) -> bool:
    return _whole(identity) not in _distrusted


def distrust_table(path: Path, identity: FileIdentity, contradiction: TableContradicted) -> None:
    """Remember that a file's packets are not those of its table.

    Args:
        identity: of the file when it was opened.

    Raises:
        UnreadableVideoError: the file is another one by now, so that this tells nothing of its table.
    """
    try:
        is_same = file_identity(path) == identity
    except VideoError:
        is_same = False
    if not is_same:
        raise UnreadableVideoError(f"{contradiction}; was it changed or cut while it was open?") from None
    if len(_distrusted) >= MAX_REMEMBERED:
        _distrusted.clear()
    _distrusted.add(_whole(identity))


def _whole(identity: FileIdentity) -> FileIdentity:
    """Of the file that a part was taken from: both have one table."""
    return identity._replace(clip="")
