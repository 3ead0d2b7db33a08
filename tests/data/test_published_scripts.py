"""Which letter the scripts of benchmarks mean."""

from __future__ import annotations

import json
from pathlib import Path

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import BenchmarkFiles, get_benchmark
from verl_video_tools.data.formats import read_rows as read_annotations
from verl_video_tools.data.formats.entries import Row


def read(name: str, files: BenchmarkFiles) -> list[Row | RowError]:
    return [row for _, row in read_annotations(get_benchmark(name), files)]


def test_of_options_that_are_the_same_mlvu_means_the_last(tmp_path: Path) -> None:
    """As its authors' code does; of MVBench, whose code is another, the first."""
    entry = {
        "video": "v.mp4",
        "question": "Which mood?",
        "candidates": ["calm", "bold", "calm", "shy"],
        "answer": "calm",
    }
    entry["question_type"] = "plotQA"
    (tmp_path / "v.mp4").touch()
    for name, file, letter in [("mlvu-dev", "1_plotQA.json", "C"), ("mvbench", "action_count.json", "A")]:
        (tmp_path / file).write_text(json.dumps([entry]))
        video = tmp_path / "perception" / "videos" / "v.mp4"
        video.parent.mkdir(parents=True, exist_ok=True)
        video.touch()
        (row,) = read(name, BenchmarkFiles(annotations=tmp_path / file, videos=tmp_path))
        assert not isinstance(row, RowError) and row["reward_model"]["ground_truth"] == letter
