"""Progress where standard error is a file: lines while the work is under way, not only at its end."""

from __future__ import annotations

import pytest

from verl_video_tools.cli.progress import progress_bars, progress_lines


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_a_line_every_half_minute_with_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with progress_lines("base model", "teacher", now=clock) as (base, _):
        base(10, 40)  # done by an earlier run
        for num_done in range(11, 41):
            clock.seconds += 10
            base(num_done, 40)
            if num_done == 13:
                assert capsys.readouterr().err == "base model: 13/40, 0:04:30 left\n"
            if num_done == 15:
                assert capsys.readouterr().err == "", "not more often"
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "base model: 16/40, 0:04:00 left"
    assert told[-1] == "base model: 40/40" and len(told) == 9, "nothing of the teacher, who was not asked"


def test_how_far_it_got_is_told_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="lost"), progress_bars("eval") as (advance,):
        advance(0, 4)
        advance(3, 4)
        raise ValueError("lost")
    assert capsys.readouterr().err.startswith("eval: 3/4")


def test_what_else_there_is_to_tell_stands_before_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with progress_lines("eval", now=clock) as (advance,):
        advance(0, 3, "")
        clock.seconds += 40
        advance(1, 3, "accuracy 1.000")
        advance(3, 3, "accuracy 0.667, 1 flagged")
    assert capsys.readouterr().err.splitlines() == [
        "eval: 1/3, accuracy 1.000, 0:01:20 left",
        "eval: 3/3, accuracy 0.667, 1 flagged",
    ]


def test_a_bar_shows_it_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # taken for a terminal
    with progress_bars("eval") as (advance,):
        advance(1, 3, "accuracy 1.000")
    assert "accuracy 1.000" in capsys.readouterr().err
