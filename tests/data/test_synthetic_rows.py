"""The data set on disk: row schema, disjoint splits, and when a folder is made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples.tiny_models.frame_pool import decode_all
from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.synthetic_rows import load_rows, make_demo, question_from_row
from verl_video_tools.synthetic.world import label_at
from verl_video_tools.video import Video

SMALL: dict[str, Any] = {
    "num_train_videos": 3,
    "num_test_videos": 2,
    "questions_per_video": 2,
    "seed": 4,
    "num_processes": 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_demo(tmp_path_factory.mktemp("demo"), **SMALL)


@pytest.mark.slow
def test_rows_follow_the_schema(folder: Path) -> None:
    for split, videos in (("train", 3), ("test", 2)):
        rows = load_rows(folder / f"{split}.parquet")
        assert len(rows) == videos * 2
        for index, row in enumerate(rows):
            assert set(row) == {"data_source", "agent_name", "prompt", "ability", "reward_model", "extra_info"}
            spec, question = question_from_row(row)
            assert row["agent_name"] == "framethinker"
            assert row["prompt"] == [{"role": "user", "content": question.text}]
            assert row["reward_model"] == {"style": "rule", "ground_truth": question.answer}
            extra = row["extra_info"]
            assert extra["question"] == question.text
            assert extra["question_type"] == "mc"
            assert extra["options"] == list(question.options.values())
            assert (extra["index"], extra["split"]) == (index, split)
            path = Path(extra["video_path"])
            assert path.is_absolute() and path.is_file()
            if index % 2 == 0:  # two questions per video
                assert len(decode_all(path)) == spec.num_frames


def test_rows_are_read_by_the_package(folder: Path) -> None:
    from verl_video_tools.core.types import Sample

    row = load_rows(folder / "test.parquet")[0]
    sample = Sample.from_row(row)
    _, question = question_from_row(row)
    assert (sample.question, sample.ground_truth) == (question.text, question.answer)
    assert sample.options == tuple(question.options.values())


def test_splits_share_no_video(folder: Path) -> None:
    specs = {
        split: {question_from_row(row)[0] for row in load_rows(folder / f"{split}.parquet")}
        for split in ("train", "test")
    }
    assert not specs["train"] & specs["test"]
    assert (len(specs["train"]), len(specs["test"])) == (3, 2)


def test_another_seed_gives_other_videos(folder: Path, tmp_path: Path) -> None:
    other = make_demo(tmp_path, **{**SMALL, "seed": 5, "num_train_videos": 1, "num_test_videos": 1})
    ours = {question_from_row(row)[0] for row in load_rows(folder / "train.parquet")}
    theirs = {question_from_row(row)[0] for row in load_rows(other / "train.parquet")}
    assert not ours & theirs


@pytest.mark.slow
def test_a_complete_folder_is_kept_and_anything_else_made_anew(tmp_path: Path) -> None:
    tiny = {**SMALL, "num_train_videos": 1, "num_test_videos": 1}
    folder = make_demo(tmp_path, **tiny)
    video = folder / "videos" / "train_0000.mp4"
    made = video.stat().st_mtime_ns
    make_demo(tmp_path, **tiny)
    assert video.stat().st_mtime_ns == made

    video.unlink()
    make_demo(tmp_path, **tiny)
    assert video.is_file()

    made = video.stat().st_mtime_ns
    (folder / "manifest.json").write_text("{}")  # as after a run that was interrupted
    make_demo(tmp_path, **tiny)
    assert video.stat().st_mtime_ns != made

    make_demo(tmp_path, **{**tiny, "agent_names": ["videozoomer"]})
    assert load_rows(folder / "train.parquet")[0]["agent_name"] == "videozoomer"


@pytest.mark.parametrize("name", ["videos/mine.mp4", "train.parquet"])
def test_a_folder_with_files_of_the_user_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=r"exists, and was made by no demo; name another folder"):
        make_demo(tmp_path, **{**SMALL, "num_train_videos": 1, "num_test_videos": 1})
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [Path(name).name]


@pytest.mark.slow
def test_renders_in_worker_processes_too(folder: Path, tmp_path: Path) -> None:
    other = make_demo(tmp_path, **{**SMALL, "num_train_videos": 1, "num_test_videos": 1, "num_processes": 2})
    ours, theirs = (path / "videos" / "train_0000.mp4" for path in (folder, other))
    assert ours.read_bytes() == theirs.read_bytes()


def test_frames_on_disk_show_what_the_rows_say(folder: Path) -> None:
    from tests.synthetic.test_world import seen_colour

    row = load_rows(folder / "train.parquet")[0]
    spec, _ = question_from_row(row)
    frames = decode_all(row["extra_info"]["video_path"])
    for index in range(0, spec.num_frames, 5):
        label = label_at(spec, index)
        assert seen_colour(frames[index]) == (label.split()[0] if label else None)


def test_a_spatial_world_has_large_videos_and_its_own_questions(tmp_path: Path) -> None:
    folder = make_demo(tmp_path, 1, 1, 3, agent_names=["compose"], num_processes=1, spatial=True)
    for row in [row for split in ("train", "test") for row in load_rows(folder / f"{split}.parquet")]:
        spec, question = question_from_row(row)
        assert (spec.world, question.kind) == ("spatial", "on_card")
        info = Video(row["extra_info"]["video_path"]).info
        assert (info.num_frames, info.width, info.height) == (spec.num_frames, spec.side_pixels, spec.side_pixels)
        start, end = row["extra_info"]["video_segment"]
        assert row["extra_info"]["question"].startswith(f"What is on the card between {start:.1f}s and {end:.1f}s?")
        assert row["extra_info"]["classification"] == "active"
    with pytest.raises(ValueError, match="ask for one of them"):
        make_demo(tmp_path, 1, 1, needle=True, spatial=True)


@pytest.mark.parametrize("name", ["num_train_videos", "num_test_videos", "questions_per_video"])
def test_counts_below_one_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make_demo(tmp_path, **{**SMALL, name: 0})
