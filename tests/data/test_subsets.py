"""Videos known again by name, YouTube id and content; splits by them; statistics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.data.row_files import make_row, read_rows, write_rows
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.subsets import split_by_video, video_name, youtube_id


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/data/dQw4w9WgXcQ.mp4", "dQw4w9WgXcQ"),
        ("v_dQw4w9WgXcQ.mkv", "dQw4w9WgXcQ"),
        ("ytb_dQw4w9WgXcQ_10_25.5.mp4", "dQw4w9WgXcQ"),
        ("A walk in the park [dQw4-_WgXcQ].webm", "dQw4-_WgXcQ"),
        ("description.mp4", None),
        ("video_10909.mp4", None),
        ("dQw4w9WgXcQabc.mp4", None),
        ("217.mp4", None),
        ("dQw4w9WgXcQ_10_25.5", "dQw4w9WgXcQ"),
        ("dQw4w9WgXcQ-Scene-001.mp4", "dQw4w9WgXcQ"),
        ("v_dQw4w9WgXcQ_clip_3.mp4", "dQw4w9WgXcQ"),
        ("dQw4w9WgXcQ_SPLIT1-720p.f137.mp4", "dQw4w9WgXcQ"),
        ("dQw4w9WgXcQ_chunk_10_25.5", "dQw4w9WgXcQ"),
        ("dQw4w9WgXcQ_clipped.mp4", None),
        (f"dQw4w9WgXcQ{'.1' * 200}x.mp4", None),
        ("youcook2/204/dQw4w9WgXcQ/split_1.mp4", "dQw4w9WgXcQ"),
        ("v_dQw4w9WgXcQ/Scene-001.mp4", "dQw4w9WgXcQ"),
        ("dQw4w9WgXcQ/217.mp4", None),
        ("TrainVideos/clip_3.mp4", None),
        ("SampleVideo_clip_3.mp4", None),
        ("VideoClips1/part2.mp4", None),
        ("Video_Clips/clip.mp4", None),
        ("split_1.mp4", None),
    ],
)
def test_youtube_ids(path: str, found: str | None) -> None:
    assert youtube_id(path) == found


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("set/clip_10.5", "clip_10.5"),
        ("clip_10.5.mp4", "clip_10.5"),
        ("clip.MKV", "clip"),
        (".mp4", ".mp4"),
    ],
)
def test_names_of_videos(path: str, name: str) -> None:
    assert video_name(path) == name


def are_one(folder: Path, *paths: str | Path) -> bool:
    """Whether videos cannot be split."""
    source = write_rows(folder / "rows.parquet", [make_row(path) for path in paths])
    try:
        split_by_video(source, folder / "train.parquet", folder / "test.parquet", second_share=0.5)
    except UsageError:
        return True
    return False


def test_files_with_the_same_content_are_one_video(tmp_path: Path) -> None:
    paths = {}
    for name, content in [("a", b"x" * 3_000_000), ("b", b"x" * 3_000_000), ("c", b"y" * 3_000_000)]:
        paths[name] = tmp_path / f"{name}.mp4"
        paths[name].write_bytes(content)
    assert are_one(tmp_path, paths["a"], paths["b"])
    assert not are_one(tmp_path, paths["a"], paths["c"])


def test_folders_of_frames_are_known_by_their_names(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("kitchen", "hall", "0001/frames", "0002/frames")]
    for folder in folders:  # of equal size, as files of equal content have
        folder.mkdir(parents=True)
    kitchen, hall, *unnamed = (f"{folder}#fps=2" for folder in folders)
    assert are_one(tmp_path, kitchen, f"{kitchen}&t=1,2", f"{folders[0]}#fps=4")
    assert not are_one(tmp_path, kitchen, hall)
    assert not are_one(tmp_path, *unnamed)


def test_a_path_that_can_be_no_file_is_known_by_its_name(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.parquet", [make_row(name) for name in ("a\0b.mp4", "c.mp4")])
    split = split_by_video(rows, tmp_path / "train.parquet", tmp_path / "test.parquet", second_share=0.5)
    assert split.num_rows == (1, 1)


def test_identity_is_passed_on_along_a_chain(tmp_path: Path) -> None:
    chain = ["x/dQw4w9WgXcQ.mp4", "y/dQw4w9WgXcQ.mkv", "z/v_dQw4w9WgXcQ.mp4"]
    assert are_one(tmp_path, *chain) and not are_one(tmp_path, *chain, "other.mp4")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a/dQw4w9WgXcQ-Scene-001.mp4", "b/dQw4w9WgXcQ_clip_3.mp4", True),
        ("204/dQw4w9WgXcQ/split_1.mp4", "dQw4w9WgXcQ.mp4", True),
        ("low/217/clip_3.mp4", "high/217/clip_3.mkv", True),
        ("216/clip_3.mp4", "217/clip_3.mp4", False),
        ("TrainVideos/clip_3.mp4", "TrainVideos/clip_4.mp4", False),
        ("a/217.mp4", "b/217.mp4", True),
        ("a/RPY8D_0.0_15.2.mp4", "b/RPY8D.mp4", True),
        ("a/RPY8D_0.0_15.2.mp4", "b/RPY8D_16_20.5.mp4", True),
        ("RPY8D_0_15.mp4", "RPY8D.mp4", False),
        ("RPY8D_15.2_0.5.mp4", "RPY8D.mp4", False),
        ("216/clip_0.0_15.2.mp4", "217/clip_16.0_20.5.mp4", False),
    ],
)
def test_pieces_of_one_video_are_one(one: str, other: str, same: bool, tmp_path: Path) -> None:
    assert are_one(tmp_path, one, other) == same


def test_a_split_shares_no_video(tmp_path: Path) -> None:
    rows = [make_row(f"{folder}/walk{number}.mp4", index=number) for number in range(20) for folder in ("low", "high")]
    source = write_rows(tmp_path / "rows.parquet", rows)
    train, test = tmp_path / "train.parquet", tmp_path / "test.parquet"
    split = split_by_video(source, train, test, second_share=0.25, seed=1)
    assert split.num_rows == (30, 10) and split.num_videos == (15, 5)
    parts = [read_rows(train), read_rows(test)]
    names = [{Path(row["extra_info"]["video_path"]).name for row in part} for part in parts]
    assert not names[0] & names[1] and len(names[0] | names[1]) == 20
    assert [{row["extra_info"]["split"] for row in part} for part in parts] == [{"train"}, {"test"}]
    others = [{**row, "extra_info": {**row["extra_info"], "split": "all"}} for part in parts for row in part]
    assert sorted(others, key=str) == sorted(rows, key=str), "nothing but the split's name is changed"

    reversed_source = write_rows(tmp_path / "reversed.parquet", rows[::-1])
    split_by_video(reversed_source, tmp_path / "other.parquet", test, second_share=0.25, seed=1)
    assert read_rows(test)[::-1] == parts[1], "the order of the rows does not matter"
    split_by_video(source, train, test, second_share=0.25, seed=2)
    assert {Path(row["extra_info"]["video_path"]).name for row in read_rows(test)} != names[1]


@pytest.mark.parametrize(("num_videos", "is_few"), [(8, True), (80, False)])
def test_a_part_that_measures_nothing_is_named(
    num_videos: int, is_few: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_rows(tmp_path / "rows.parquet", [make_row(f"v{number}.mp4") for number in range(num_videos)])
    test = tmp_path / "test.parquet"
    assert run(["data", "split", str(source), str(tmp_path / "train.parquet"), str(test), "--share", "0.5"]) == 0
    warning = f"with fewer than 30 videos, {test} gives accuracies without an interval"
    assert (warning in capsys.readouterr().out) == is_few


def test_clips_and_rows_of_several_videos_are_split_with_their_videos(tmp_path: Path) -> None:
    clips = [make_row(f"/v/cut{number}.mp4#t=1,2") for number in range(10)]
    whole = [make_row(f"/v/cut{number}.mp4") for number in range(10)]
    several = [row_of_several(f"/v/cut{i}.mp4", f"/v/cut{i + 1}.mp4") for i in (0, 4)]
    source = write_rows(tmp_path / "rows.parquet", [*clips, *whole, *several])
    paths = tmp_path / "train.parquet", tmp_path / "test.parquet"
    for seed in range(5):
        split = split_by_video(source, *paths, second_share=0.3, seed=seed)
        parts = [read_rows(path) for path in paths]
        assert tuple(map(len, parts)) == split.num_rows and sum(split.num_videos) == 8
        train, test = ({file for row in part for file in files_in(row)} for part in parts)
        assert not train & test and len(train | test) == 10


def row_of_several(*paths: str) -> dict[str, Any]:
    row = make_row("", video_paths=[*paths])
    return {**row, "extra_info": {**row["extra_info"], "video_path": None}}


def files_in(row: Mapping[str, Any]) -> list[str]:
    info = row["extra_info"]
    return [path.partition("#")[0] for path in info.get("video_paths") or [info["video_path"]]]


@pytest.mark.parametrize(("sizes", "share"), [((10, 1, 1), 0.5), ((30, 30, 30, 5), 0.9)])
def test_a_large_video_at_the_end_is_left_to_the_first_part(
    sizes: tuple[int, ...], share: float, tmp_path: Path
) -> None:
    rows = [make_row(f"walk{number}.mp4") for number, size in enumerate(sizes) for _ in range(size)]
    source = write_rows(tmp_path / "rows.parquet", rows)
    for seed in range(8):
        split = split_by_video(source, tmp_path / "a.parquet", tmp_path / "b.parquet", second_share=share, seed=seed)
        assert min(split.num_videos) > 0 and sum(split.num_rows) == sum(sizes)


def row_of_text(question: str) -> dict[str, Any]:
    row = make_row("", question=question, visuals="none")
    return {**row, "extra_info": {**row["extra_info"], "video_path": None}}


def test_texts_alone_are_split(tmp_path: Path) -> None:
    videos = [make_row(f"walk{number}.mp4", visuals=None) for number in range(4)]
    texts = [row_of_text(f"What is {number}/walk1.mp4?") for number in range(8)]
    source = write_rows(tmp_path / "rows.parquet", [*videos, *texts, texts[0]])
    parts = tmp_path / "train.parquet", tmp_path / "test.parquet"
    split = split_by_video(source, *parts, second_share=0.4, seed=1)
    assert sum(split.num_rows) == 13 and sum(split.num_videos) == 4 and 5 <= split.num_rows[1] <= 6
    train, test = ({row["extra_info"]["question"] for row in read_rows(part)} for part in parts)
    assert not train & test & {text["extra_info"]["question"] for text in texts}, "the same question is on one side"


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_part_may_be_empty(share: float, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rows.parquet", [make_row("a.mp4"), make_row("b.mp4")])
    with pytest.raises(UsageError, match="cannot be split"):
        split_by_video(source, tmp_path / "train.parquet", tmp_path / "test.parquet", second_share=share)
    assert not (tmp_path / "train.parquet").exists()


def test_the_parts_are_two_files(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rows.parquet", [make_row("a.mp4"), make_row("b.mp4")])
    (tmp_path / "sub").mkdir()
    with pytest.raises(UsageError, match=r"both parts would be written to .*x\.parquet; give two files"):
        split_by_video(source, tmp_path / "x.parquet", tmp_path / "sub" / ".." / "x.parquet", second_share=0.5)
    assert not (tmp_path / "x.parquet").exists()
