"""Recorded rollouts as a Hugging Face dataset, read with `datasets`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.records.test_html import SEQUENCE
from tests.records.test_html_regions import with_parts
from tests.videos.files import MakeVideo
from tests.viewer_page import line
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import StopReason, Trajectory
from verl_video_tools.data import export_hf as module
from verl_video_tools.data.export_hf import export_hf
from verl_video_tools.data.hf_rollouts import COLUMNS, row_of
from verl_video_tools.records.records import RecordWriter
from verl_video_tools.records.thumbnails import Thumbnails


def record_run(folder: Path, training: dict[int, list[Any]], validation: dict[int, list[Any]] | None = None) -> Path:
    writer = RecordWriter(folder / "trajectories")
    for step, lines in training.items():
        writer.write(step, lines)
    for step, lines in (validation or {}).items():
        writer.write(step, lines, validation=True)
    return folder


def loaded(folder: Path, cache: Path) -> Any:
    import datasets

    return datasets.load_dataset(str(folder), cache_dir=str(cache))


def test_datasets_reads_rollouts_with_their_frames(tmp_path: Path, make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    first = with_parts(path) | {"sequences": [SEQUENCE], "data_source": "world"}
    second = line(1, score=0.5, path="/no/video.mp4", stop=StopReason.MAX_TURNS, text="cut \ud83d")
    second["reward"]["strange"] = "no number"
    held_out = line(2, method="framethinker") | {"advantage": None, "ground_truth": ["a", "b"]}
    run_dir = record_run(tmp_path / "run", {3: [first, second]}, {3: [held_out]})
    told: list[int] = []
    report = export_hf(run_dir, tmp_path / "out" / "hf", exported=told.append)
    assert report.num_rollouts == {"train": 2, "validation": 1} and told == [2, 3]
    assert report.methods == {"longvt": 2, "framethinker": 1}
    assert list(report.notes) == ["/no/video.mp4", "/videos/none.mp4"]

    data = loaded(tmp_path / "out" / "hf", tmp_path / "cache")
    assert {split: len(rows) for split, rows in data.items()} == {"train": 2, "validation": 1}
    assert list(data["train"].features) == list(COLUMNS)
    one, two = data["train"]
    assert (one["step"], one["group"], one["rollout"], one["method"]) == (3, "group-1", 0, "longvt")
    assert (one["question"], one["ground_truth"], one["answer"], one["stop_reason"]) == (
        "What is shown?",
        "B",
        "B",
        "answer",
    )
    assert (one["score"], one["accuracy"], one["advantage"], one["data_source"]) == (1.0, 1.0, 0.25, "world")
    assert {"name": "format", "value": 0.5} in one["reward"] and {"name": "strange", "value": None} in two["reward"]
    assert (one["num_turns"], one["num_calls"], one["num_frames"]) == (2, 1, 6)
    assert (one["video"], one["video_seconds"], one["initial_frames"]) == (path, 10.0, [0, 25, 49])
    looked, refused = one["turns"][0]["calls"]
    assert (looked["name"], looked["ok"], json.loads(looked["arguments"])) == ("crop_video", True, {"start_time": 2.0})
    assert (looked["frames"], looked["seconds"]) == ([10, 10, 20], [2.0, 2.0, 4.0])
    assert refused["error"] == "out_of_range: beyond the end" and refused["frames"] == []

    # Three of the first look, two parts of a frame, three of a grid.
    shown = [(of["turn"], of["call"], of["frame"], of["region"]) for of in one["image_frames"]]
    assert shown == [
        *((0, None, frame, None) for frame in (0, 25, 49)),
        (1, "crop_video", 10, [0, 0, 32, 18]),
        (1, "crop_video", 10, [32, 9, 64, 36]),
        *((1, "crop_video", frame, None) for frame in (20, 21, 22)),
    ]
    assert [image.size for image in one["images"]] == [(64, 36)] * 3 + [(32, 18), (32, 27)] + [(64, 36)] * 3
    assert one["image_frames"][1]["seconds"] == 5.0

    assert two["images"] == [] and two["turns"][0]["text"] == "cut ?"
    (third,) = data["validation"]
    assert third["advantage"] is None and third["ground_truth"] == '["a", "b"]'

    record = json.loads(one["record"])
    assert "sequences" not in record and record["extra_info"] == first["extra_info"]
    assert Trajectory.from_dict(record["trajectory"]) == first["trajectory"]


def test_what_was_not_scored_is_null() -> None:
    """A component that rollouts of a group earn by comparison, of a held-out rollout: it stood there as 0."""
    held_out, trained = line() | {"advantage": None}, line()
    for recorded in (held_out, trained):
        recorded["trajectory"].made_of = {"rewards": ["accuracy", "curiosity"], "group_rewards": ["curiosity"]}
        recorded["reward"] = {"score": 1.0, "accuracy": 1.0, "curiosity": 0.0}
    rewards = [row_of(recorded, Thumbnails())["reward"] for recorded in (held_out, trained)]
    values = [{term["name"]: term["value"] for term in terms} for terms in rewards]
    assert values[0] == {"score": 1.0, "accuracy": 1.0, "curiosity": None}
    assert values[1] == {"score": 1.0, "accuracy": 1.0, "curiosity": 0.0}


def test_a_run_in_several_files_keeps_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS_PER_GROUP", 2)
    monkeypatch.setattr(module, "_BYTES_PER_FILE", 1)
    run_dir = record_run(tmp_path / "run", {step: [line(n) for n in range(3)] for step in (1, 2)})
    export_hf(run_dir, tmp_path / "hf", images=False)
    names = sorted(path.name for path in (tmp_path / "hf" / "data").iterdir())
    assert names == [f"train-{number:05d}.parquet" for number in range(3)]
    data = loaded(tmp_path / "hf", tmp_path / "cache")["train"]
    assert data["rollout"][:] == [0, 1, 2, 0, 1, 2]
    assert all(images == [] for images in data["images"])


def test_images_have_the_size_that_is_asked_for(tmp_path: Path, make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    run_dir = record_run(tmp_path / "run", {3: [line(path=path)]})
    report = export_hf(run_dir, tmp_path / "hf", side_pixels=32)
    (row,) = loaded(tmp_path / "hf", tmp_path / "cache")["train"]
    assert [image.size for image in row["images"]] == [(32, 18)] * 5 and report.num_images == 5


def test_nothing_is_overwritten_and_nothing_half_written_stays(tmp_path: Path) -> None:
    run_dir = record_run(tmp_path / "run", {1: [line()]})
    out = tmp_path / "hf"
    out.mkdir()
    export_hf(run_dir / "trajectories", out)  # an empty folder is none
    kept = (out / "README.md").read_bytes()
    for taken in (out, run_dir, run_dir / "trajectories" / "step_000001.jsonl"):
        with pytest.raises(UsageError, match="exists and is not an empty folder"):
            export_hf(run_dir, taken)
    assert (out / "README.md").read_bytes() == kept
    with (run_dir / "trajectories" / "step_000001.jsonl").open("a") as file:
        file.write("no rollout\n")
    with pytest.raises(UsageError, match="line 2: not a recorded rollout"):
        export_hf(run_dir, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "run"]


def test_the_card_names_what_a_record_chose_as_code(tmp_path: Path) -> None:
    name = "`<script>`\n---\nconfigs: []"
    export_hf(record_run(tmp_path / "run", {1: [line(method=name)]}), tmp_path / "hf", images=False)
    text = (tmp_path / "hf" / "README.md").read_text()
    assert "# Rollouts of `run`" in text and "Methods: `?<script>??---?configs: []` (1)." in text
    assert text.count("---") == 2 + 2 + 1  # front matter, the table's head, and the method
    assert all(f"| `{column}` |" in text for column in COLUMNS)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "no recorded rollout; give a run's folder"), ('{"half a line', "its files hold no whole line")],
)
def test_a_run_without_rollouts_is_told(
    content: str | None, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    if content is not None:
        (run_dir / "step_000001.jsonl").write_text(content)
    assert run(["data", "export-hf", str(run_dir), str(tmp_path / "hf")]) == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir, out = record_run(tmp_path / "run", {1: [line()]}, {1: [line(), line(1)]}), tmp_path / "hf"
    assert run(["data", "export-hf", str(run_dir), str(out)]) == 0
    told = capsys.readouterr().out
    assert f"{out}: 1 rollouts in train, 2 rollouts in validation, 0 images" in told
    assert "videos without images: 1, for example VideoNotFoundError" in told
    assert run(["data", "export-hf", str(run_dir), str(out)]) == 2
