"""examples/export_records: recorded rollouts as a data set of Hugging Face, read with `datasets`."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from tests.examples.conftest import EXAMPLES
from tests.videos.files import read_number, write_video
from tests.viewer_page import line
from verl_video_tools.core.types import Trajectory
from verl_video_tools.records.records import RecordWriter

EXPORT = runpy.run_path(str(EXAMPLES / "export_records" / "to_hugging_face.py"))["export"]


@pytest.mark.slow
def test_datasets_reads_rollouts_with_their_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import datasets

    video = write_video(tmp_path / "video.mp4", num_frames=50, fps=5)
    rollouts = [line(0, score=0.5, path=str(video)), line(1, path=str(tmp_path / "gone.mp4"))]
    writer = RecordWriter(tmp_path / "run" / "trajectories")
    writer.write(3, rollouts)
    writer.write(3, [line(2, path=str(video)) | {"advantage": None}], validation=True)
    EXPORT(tmp_path / "run", tmp_path / "out")
    printed = capsys.readouterr().out
    assert "train: 2 rollouts" in printed and "validation: 1 rollouts" in printed
    assert "no images: " in printed and "gone.mp4" in printed

    data = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in data.items()} == {"train": 2, "validation": 1}
    one, two = data["train"]
    assert (one["step"], one["method"], one["question"], one["answer"]) == (3, "longvt", "What is shown?", "B")
    assert (one["score"], one["accuracy"], one["advantage"], one["stop_reason"]) == (0.5, 1.0, 0.25, "answer")
    assert one["turns"] == ["<think>look</think>", "B"] and one["observations"] == ["2.0s <image>", None]
    assert [read_number(np.asarray(picture)) for picture in one["images"]] == [0, 25, 49, 10, 12]
    assert one["seconds"] == pytest.approx([0.0, 5.0, 9.8, 2.0, 2.4])
    assert Trajectory.from_dict(json.loads(one["trajectory"])) == rollouts[0]["trajectory"]
    assert two["images"] == []
    assert data["validation"][0]["advantage"] is None
