"""Work that only tells of a run: it never raises, and what failed is tried again in order."""

from __future__ import annotations

import logging
import threading

import pytest

from verl_video_tools.records.best_effort import BestEffort


class Disk:
    """Takes numbers, while there is room."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.refused: set[int] = set()

    def take(self, number: int, *, twice: bool = False) -> None:
        if number in self.refused:
            raise OSError("no space left")
        self.taken += [number] * (1 + twice)


def test_what_failed_comes_before_what_is_next(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    tell = BestEffort(disk.take, "telling", "failures")
    disk.refused = {1, 2}
    tell(1)
    tell(2, twice=True)
    disk.refused = set()
    tell(3)
    assert disk.taken == [1, 2, 2, 3] and tell.num_failures == 3
    (message,) = caplog.messages
    assert message == (
        "failed: telling; training goes on, and the next call repeats this one (logged once, counted in failures)"
    )


def test_one_that_can_never_be_told_holds_up_no_other() -> None:
    disk = Disk()
    disk.refused = {1}
    tell = BestEffort(disk.take, "telling", "failures", max_pending=1)
    for number in (1, 2, 3):
        tell(number)
    assert disk.taken == [2, 3]


def test_the_oldest_is_lost_where_all_fail() -> None:
    disk = Disk()
    disk.refused = {1, 2, 3}
    tell = BestEffort(disk.take, "telling", "failures", max_pending=2)
    for number in (1, 2, 3):
        tell(number)
    disk.refused = set()
    tell.try_again()
    assert disk.taken == [2, 3]
    tell.try_again()
    assert disk.taken == [2, 3]


def test_what_cannot_be_kept_is_not_promised(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.refused = {1}
    tell = BestEffort(disk.take, "telling", "failures", max_pending=0)
    tell(1)
    disk.refused = set()
    tell(2)
    assert disk.taken == [2] and "tried again" not in caplog.text


def test_an_interruption_is_no_failure() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BestEffort(interrupted, "telling", "failures")()


def test_two_threads_tell_everything_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    disk, numbers = Disk(), range(200)
    tell = BestEffort(disk.take, "telling", "failures")
    threads = [threading.Thread(target=lambda: [tell(number) for number in numbers]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(disk.taken) == sorted([*numbers, *numbers])
