"""Locks by name: those who hang delay few others, and files are made on demand."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from verl_video_tools.video.file_locks import StripedLocks


def test_holders_that_hang_delay_hardly_anybody_else(tmp_path: Path) -> None:
    """As many as the threads of a process that may hang."""
    locks = StripedLocks(tmp_path / "locks")
    with ExitStack() as stack:
        for number in range(16):
            stack.enter_context(locks.try_hold(f"hanging/{number}"))
        assert len(list((tmp_path / "locks").iterdir())) <= 16
        num_delayed = 0
        for number in range(2000):
            with locks.try_hold(f"other/{number}") as held:
                num_delayed += not held
    assert num_delayed < 20
