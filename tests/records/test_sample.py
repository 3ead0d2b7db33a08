"""Which rollouts a page takes of more: whole groups, the last steps, evenly spread rows."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.recorded_run import rollout, write_run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.records.records import read_again
from verl_video_tools.records.sample import Entry, read_entries, sample


def row(index: int, session: int = 0, method: str = "longvt") -> dict[str, Any]:
    line = rollout(f"{method} {index}", 1.0, method=method)
    return {**line, "session_id": session, "extra_info": {"index": index}}


def entries(tmp_path: Path, *lines: dict[str, Any], step: int = 1) -> list[Entry]:
    """Of lines in any order: rollouts are recorded as they finish."""
    shuffled = random.Random(0).sample(lines, len(lines))
    run = write_run(tmp_path / str(step), {step: shuffled})
    return read_entries(run / "trajectories", lambda count: None)


def test_validation_rows_are_spread(tmp_path: Path) -> None:
    lines = [row(index, method=method) for index in range(90) for method in ("direct", "longvt")]
    read = entries(tmp_path, *lines)
    chosen = sample(read, 10)
    assert Counter(entry.method for entry in chosen) == {"longvt": 5, "direct": 5}
    assert [entry.index for entry in chosen if entry.method == "direct"] == [0, 19, 39, 59, 79]
    assert [entry.index for entry in sample(read, 500)] == [*range(90), *range(90)]


def test_groups_stay_whole(tmp_path: Path) -> None:
    read = entries(tmp_path, *(row(index, session) for index in range(9) for session in range(4)))
    chosen = sample(read, 15)
    assert [(entry.index, entry.session) for entry in chosen] == [
        (i, session) for i in (0, 4, 8) for session in range(4)
    ]
    assert [entry.session for entry in sample(read, 3)] == [0, 1, 2]  # more than an empty page


def test_the_last_steps_come_first(tmp_path: Path) -> None:
    lines = [row(index, session) for index in range(4) for session in range(2)]
    read = [entry for step in (1, 2, 3) for entry in entries(tmp_path, *lines, step=step)]
    assert Counter(entry.step for entry in sample(read, 20)) == {1: 4, 2: 8, 3: 8}
    chosen = sample(read, 12)
    assert [entry.step for entry in chosen] == [2] * 4 + [3] * 8
    assert [entry.index for entry in chosen[:4]] == [0, 0, 3, 3]


def test_rollouts_of_no_training_run_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    lines = [{"trajectory": rollout("", 1.0)["trajectory"], "n": number} for number in range(5)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = read_entries(path, lambda count: None)
    assert [read_again(entry.place)["n"] for entry in sample(read, 3)] == [0, 2, 4]


def test_a_line_that_changed_meanwhile_is_named(tmp_path: Path) -> None:
    (entry,) = entries(tmp_path, row(0))
    entry.place.file.write_text("{}\n")
    with pytest.raises(UsageError, match=r"step_000001\.jsonl, line 1: not a recorded rollout"):
        read_again(entry.place)
