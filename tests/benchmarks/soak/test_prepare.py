"""The rows of a soak."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak.prepare import _judged
from verl_video_tools.data.synthetic_rows import make_row, questions_about
from verl_video_tools.synthetic.world import random_spec


def test_a_judged_row_asks_the_same_of_the_same_video_without_options() -> None:
    spec = random_spec(3)
    question = questions_about(spec, 1, 0)[0]
    row = make_row(spec, question, Path("/videos/train_0003.mp4"), 17, "train", "longvt")
    judged = _judged(row)
    assert row["extra_info"]["question_type"] == "mc" and judged["extra_info"]["question_type"] != "mc"
    assert "options" not in judged["extra_info"]
    for name in ("video_path", "index", "split", "video_segment"):
        assert judged["extra_info"][name] == row["extra_info"][name]
    assert judged["agent_name"] == "longvt"
