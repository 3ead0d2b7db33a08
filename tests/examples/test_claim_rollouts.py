"""Causes of a claim's verdict: what rollouts of its training did and were paid, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from examples.learning_curve.claims import __main__ as program
from examples.learning_curve.claims import rollouts
from tests.recorded_run import refused, rollout, write_run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import CallRecord
from verl_video_tools.data.synthetic_rows import make_row
from verl_video_tools.synthetic.needle import needle_questions, needle_spec

SPEC = needle_spec(1)
EXTRA_INFO = {
    question.kind: make_row(SPEC, question, Path("clip.mp4"), 0, "train", "longvt")["extra_info"]
    for question in needle_questions(SPEC, 8, 0)
}


def line(kind: str, advantage: float | None, thought: str = "", calls: Sequence[CallRecord] = ()) -> dict[str, Any]:
    """Right, and paid 1, where it has an advantage above 0."""
    made = rollout("x", float((advantage or 0.0) > 0), calls=calls)
    made["trajectory"]["turns"][0]["thought"] = thought
    return made | {"extra_info": EXTRA_INFO[kind], "advantage": advantage}


def crop(kind: str) -> CallRecord:
    """Of exactly what the question asks for."""
    times = dict(zip(("start_time", "end_time"), EXTRA_INFO[kind]["video_segment"], strict=True))
    return CallRecord("crop_video", {}, ok=True, result=times)


def of_claim(folder: Path, num_steps: int = 6, **last: Sequence[Any]) -> Path:
    """A run's folder: rollouts of the last step, by choice, and one without a call in each step before."""
    for run in ("rl", "ablation"):
        steps = {step: [line("at_time", 0.0)] for step in range(1, num_steps + 1)}
        write_run(folder / run, steps | ({num_steps: last[run]} if run in last else {}))
    return folder


def test_behaviours_are_told_apart_by_calls_and_thoughts(tmp_path: Path) -> None:
    done = [
        line("at_time", -1.0),
        line("at_time", -2.0, calls=[refused("crop_video", "out_of_range")]),
        line("between_things", 0.5, "wide triangle", [crop("between_things")]),
        line("between_things", 1.5, "between", [crop("between_things")]),
        line("between_things", -0.5, "between", [crop("between_things"), refused("crop_video", "out_of_range")]),
        line("between_things", None, "widely", [crop("between_things")]),
    ]
    table = rollouts.table([of_claim(tmp_path / "one", rl=done)]).splitlines()
    assert table[0].startswith("| choice | steps | question | behaviour | rollouts | share | right | IoU | reward |")
    assert table[2:] == [
        "| paper's | 1 to 2 | `at_time` | skip | 2 | 100% | 0% | 0.00 | 0.00 | +0.00 |",
        "| paper's | 3 to 4 | `at_time` | skip | 2 | 100% | 0% | 0.00 | 0.00 | +0.00 |",
        "| paper's | 5 to 6 | `at_time` | failed | 1 | 33% | 0% | 0.00 | 0.00 | -2.00 |",
        "| paper's | 5 to 6 | `at_time` | skip | 2 | 67% | 0% | 0.00 | 0.00 | -0.50 |",
        "| paper's | 5 to 6 | `between_things` | look | 3 | 75% | 33% | 1.00 | 0.33 | +0.33 |",
        "| paper's | 5 to 6 | `between_things` | wide | 1 | 25% | 100% | 1.00 | 1.00 | +0.50 |",
        "| other | 1 to 2 | `at_time` | skip | 2 | 100% | 0% | 0.00 | 0.00 | +0.00 |",
        "| other | 3 to 4 | `at_time` | skip | 2 | 100% | 0% | 0.00 | 0.00 | +0.00 |",
        "| other | 5 to 6 | `at_time` | skip | 2 | 100% | 0% | 0.00 | 0.00 | +0.00 |",
    ]


def test_runs_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    folders = [of_claim(tmp_path / "one", 7), of_claim(tmp_path / "two", 7, ablation=[line("at_time", 1.0)] * 4)]
    monkeypatch.setattr("sys.argv", ["claims", "rollouts", *map(str, folders)])
    program.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[2].startswith("| paper's | 1 to 3 | `at_time` | skip | 6 |")
    assert printed[-1] == "| other | 6 to 7 | `at_time` | skip | 7 | 100% | 57% | 0.00 | 0.57 | +0.57 |"


def test_few_steps_are_told_by_one(tmp_path: Path) -> None:
    steps = [line.split(" | ")[1] for line in rollouts.table([of_claim(tmp_path / "one", 4)]).splitlines()[2:]]
    assert steps == ["1 to 2", "3 to 3", "4 to 4"] * 2


@pytest.mark.parametrize("num_steps", [0, 5, 7])
def test_runs_of_unlike_length_or_too_few_steps_are_refused(tmp_path: Path, num_steps: int) -> None:
    folders = [of_claim(tmp_path / "one", 6), tmp_path / "two"]
    if num_steps:
        of_claim(folders[1], num_steps)
    with pytest.raises(UsageError, match=f"as many steps of training.*two/rl: {num_steps} steps"):
        rollouts.table(folders)
    with pytest.raises(UsageError, match="at least 3"):
        rollouts.table([of_claim(tmp_path / "short", 2)])
