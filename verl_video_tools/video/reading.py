"""What reading a file may raise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from verl_video_tools.core.errors import UnreadableVideoError, VideoToolsError

logger = logging.getLogger(__name__)


@contextmanager
def report_as_unreadable(path: Path) -> Iterator[None]:
    """For a block that reads a file: what nobody foresaw becomes a `VideoError`, the original is its cause and logged.

    PyAV raises errors of Python's own on odd files. A rollout, and the commands, are ready for a `VideoError`; anything
    else would cost the whole group of rollouts, and unflagged.

    Raises:
        UnreadableVideoError: the block raised what is not an error of this package.
    """
    try:
        yield
    except VideoToolsError:
        raise
    except Exception as error:
        message = f"{path}: reading the video failed unexpectedly: {type(error).__name__}: {error}"
        logger.warning("%s", message, exc_info=True)  # it may be a defect of ours, so its traceback must be seen
        raise UnreadableVideoError(message) from error
