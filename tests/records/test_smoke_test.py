"""What a smoke test prints at its end."""

from __future__ import annotations

import json
from pathlib import Path

from verl_video_tools.records.report import GAP, smoke_test_report


def write_log(path: Path, steps: dict[int, float]) -> None:
    path.write_text("".join(json.dumps({"step": step, "data": {GAP: gap}}) + "\n" for step, gap in steps.items()))


def test_steps_of_both_starts_and_the_worst_difference(tmp_path: Path) -> None:
    write_log(tmp_path / "metrics_1.jsonl", {1: 0.001, 2: 0.003})
    write_log(tmp_path / "metrics_1_resumed.jsonl", {3: 0.002})
    text = smoke_test_report("cpu", tmp_path)
    assert "steps 1, 2, 3; a token's probability differs by 0.0030 between engine and actor" in text
    assert "what only a GPU can show: " in text


def test_on_a_gpu_nothing_is_left_out(tmp_path: Path) -> None:
    write_log(tmp_path / "metrics_1.jsonl", {1: 0.001})
    assert "only a GPU" not in smoke_test_report("gpu", tmp_path)
