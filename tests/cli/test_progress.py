"""Progress where standard error is a file: while the work is under way, and how far it got at its end."""

from __future__ import annotations

import pytest

from verl_video_tools.cli.options import progress_bars


def test_how_far_it_got_stands_there_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="lost"), progress_bars("eval", "teacher") as (advance, _):
        advance(10, 40)  # by an earlier run
        advance(13, 40, "accuracy 0.667, 1 flagged")
        raise ValueError("lost")
    printed = capsys.readouterr().err
    assert "13/40" in printed and "accuracy 0.667, 1 flagged" in printed
    assert "teacher" not in printed, "nothing was asked of it"


def test_a_file_gets_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars("eval") as (advance,):
        for num_done in range(1001):
            advance(num_done, 1000)
    printed = capsys.readouterr().err
    assert "1000/1000" in printed and printed.count("\r") < 5
