"""Which rollouts a page takes of more: whole groups, the last steps, evenly spread rows."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from tests.recorded_run import rollout, write_run
from verl_video_tools.records.view import choose


def row(index: int, session: int = 0, method: str = "longvt") -> dict[str, Any]:
    line = rollout(f"{method} {index}", 1.0, method=method)
    return {**line, "session_id": session, "extra_info": {"index": index}}


def recorded(tmp_path: Path, *lines: dict[str, Any], steps: tuple[int, ...] = (1,)) -> Path:
    """Of lines in any order: rollouts are recorded as they finish."""
    shuffled = random.Random(0).sample(lines, len(lines))
    return write_run(tmp_path, {step: [{**line, "step": step} for line in shuffled] for step in steps})


def rows(lines: list[dict[str, Any]], method: str = "longvt") -> list[int]:
    return [line["extra_info"]["index"] for line in lines if line["trajectory"].method == method]


def test_validation_rows_are_spread(tmp_path: Path) -> None:
    run = recorded(tmp_path, *(row(index, method=method) for index in range(90) for method in ("direct", "longvt")))
    chosen, num_left_out = choose(run, 10)
    assert Counter(line["trajectory"].method for line in chosen) == {"longvt": 5, "direct": 5} and num_left_out == 170
    assert rows(chosen, "direct") == [0, 19, 39, 59, 79]
    every, none = choose(run, 500)
    assert (rows(every, "direct"), rows(every), none) == ([*range(90)], [*range(90)], 0)


def test_groups_stay_whole(tmp_path: Path) -> None:
    run = recorded(tmp_path, *(row(index, session) for index in range(9) for session in range(4)))
    chosen, _ = choose(run, 15)
    assert [(line["extra_info"]["index"], line["session_id"]) for line in chosen] == [
        (index, session) for index in (0, 4, 8) for session in range(4)
    ]
    assert [line["session_id"] for line in choose(run, 3)[0]] == [0, 1, 2]  # more than an empty page


def test_the_last_steps_come_first(tmp_path: Path) -> None:
    lines = [row(index, session) for index in range(4) for session in range(2)]
    run = recorded(tmp_path, *lines, steps=(1, 2, 3))
    assert Counter(line["step"] for line in choose(run, 20)[0]) == {1: 4, 2: 8, 3: 8}
    chosen, num_left_out = choose(run, 12)
    assert [line["step"] for line in chosen] == [2] * 4 + [3] * 8 and num_left_out == 12
    assert rows(chosen)[:4] == [0, 0, 3, 3]


def test_rollouts_of_no_training_run_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    lines = [{"trajectory": rollout("", 1.0)["trajectory"], "n": number} for number in range(5)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [line["n"] for line in choose(path, 3)[0]] == [0, 2, 4]
