"""Questions about a part of a video, and where benchmarks' own scripts leave videos and letters."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.data.format_cases import CASES, SAMPLES, prepare
from tests.data.row_files import read_rows
from tests.videos.files import read_number, write_video
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.data.convert import convert_annotations
from verl_video_tools.data.formats import BenchmarkFiles, get_benchmark
from verl_video_tools.data.formats import read_rows as read_annotations
from verl_video_tools.data.formats.entries import Row
from verl_video_tools.data.validate import probe_videos, validate_file
from verl_video_tools.video import Video


def read(name: str, files: BenchmarkFiles) -> list[Row | RowError]:
    return [row for _, row in read_annotations(get_benchmark(name), files)]


def video_of(row: Row | RowError) -> str:
    assert not isinstance(row, RowError), row
    return str(row["extra_info"]["video_path"])


def numbers_shown(path: str) -> list[int]:
    """Numbers of the first and the last frame that a video shows."""
    with Video(path) as video:
        frames = video.frames_at_indices([0, video.info.num_frames - 1]).frames_THWC
    return [read_number(frame) for frame in frames]


def test_star_is_cut_to_its_part(tmp_path: Path) -> None:
    files = prepare(CASES["star"], tmp_path)
    assert files.videos is not None
    (files.videos / "AB12C.mp4").unlink()
    write_video(files.videos / "AB12C.mp4", num_frames=120, fps=10)
    convert_annotations("star", files, tmp_path / "rows.parquet")
    first, last = read_rows(tmp_path / "rows.parquet")
    assert first["extra_info"]["video_path"] == f"{files.videos}/AB12C.mp4#t=2.4,9.1"
    assert first["extra_info"]["question"].startswith("What did the person do"), "the question names no times"
    assert numbers_shown(first["extra_info"]["video_path"]) == [24, 90]
    assert numbers_shown(last["extra_info"]["video_path"]) == [0, 44]
    infos = probe_videos(tmp_path / "rows.parquet", jobs=1, deadline_seconds=30.0)
    assert not [report for report in validate_file(tmp_path / "rows.parquet", videos=infos) if report.problems]


@pytest.fixture
def perception(tmp_path: Path) -> BenchmarkFiles:
    """The sample, whose video is a cup game, on two seconds and a half of which the answer is not shown."""
    shutil.copytree(SAMPLES / "perception_test", tmp_path / "annotations")
    (tmp_path / "videos").mkdir()
    write_video(tmp_path / "videos" / "video_42.mp4", num_frames=75, fps=30)
    return BenchmarkFiles(annotations=tmp_path / "annotations" / "mc_question_valid.json", videos=tmp_path / "videos")


def test_a_cup_game_is_cut_where_its_list_says(perception: BenchmarkFiles) -> None:
    row, _ = read("perception-test", perception)  # 60 frames of 75
    assert numbers_shown(video_of(row)) == [0, 59]


def test_a_cup_game_without_its_list_is_refused(perception: BenchmarkFiles) -> None:
    cuts = perception.annotations.with_name("cut_frame_mapping_valid.json")
    cuts.unlink()
    row, _ = read("perception-test", perception)
    assert isinstance(row, RowError) and "video_42 is a cup game, whose end shows the answer" in str(row)
    named, _ = read("perception-test", BenchmarkFiles(annotations=perception.annotations, videos=None))
    assert video_of(named) == "video_42", "names of videos can be read without it"

    def changed(**metadata: Any) -> str:
        videos = json.loads(perception.annotations.read_text())
        videos["video_42"]["metadata"].update(metadata)
        perception.annotations.write_text(json.dumps(videos))
        return video_of(read("perception-test", perception)[0])

    assert changed(split="test").endswith("video_42.mp4"), "those of the test split are cut already"
    assert changed(split="valid", is_cup_game=False).endswith("video_42.mp4")
    for content, told in [('{"video_42": -1}', "video_42.mp4"), ('{"video_42": 30}', "video_42.mp4#t=0,0.983")]:
        cuts.write_text(content)
        assert changed().endswith(told), "the list decides, whatever the game"
    cuts.write_text("[]")
    with pytest.raises(UsageError, match="cannot read the list of cuts"):
        changed()


def test_lvbench_as_its_script_leaves_videos(tmp_path: Path) -> None:
    """Numbered by line, with a file beside each that says what was downloaded."""
    source = (SAMPLES / "lvbench" / "video_info.meta.jsonl").read_text().splitlines()
    second = json.loads(source[0].replace("Ab3dE_fGh1J", "Zy9xW-vUt8S").replace('"uid": "', '"uid": "9'))
    annotations = tmp_path / "video_info.meta.jsonl"
    annotations.write_text(f"{source[0]}\n{json.dumps(second)}\n")
    folder = tmp_path / "videos" / "00000"
    folder.mkdir(parents=True)
    for number in range(2):
        (folder / f"{number:08d}.mp4").touch()
    files = BenchmarkFiles(annotations=annotations, videos=tmp_path / "videos")
    assert [Path(video_of(row)).name for row in read("lvbench", files)] == ["00000000.mp4"] * 2 + ["00000001.mp4"] * 2

    (folder / "00000001.json").write_text('{"url": "https://www.youtube.com/watch?v=Ab3dE_fGh1J"}')
    *right, wrong, _ = read("lvbench", files)
    assert all(video_of(row) for row in right) and isinstance(wrong, RowError)
    assert "not the video 'Zy9xW-vUt8S': was another list downloaded?" in str(wrong)
    (folder / "00000001.json").write_text('{"url": "https://www.youtube.com/watch?v=Zy9xW-vUt8S"}')
    (tmp_path / "videos" / "Ab3dE_fGh1J.mp4").touch()
    assert [Path(video_of(row)).stem for row in read("lvbench", files)] == ["Ab3dE_fGh1J"] * 2 + ["00000001"] * 2


def test_lvbenchs_records_have_no_numbers(tmp_path: Path) -> None:
    """Of lmms-eval's records, one per question, the place says nothing about the video."""
    record = {
        "uid": "0",
        "key": "gone",
        "type": "t",
        "question_type": ["x"],
        "question": "?\n(A) a\n(B) b",
        "answer": "A",
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    (tmp_path / "00000").mkdir()
    (tmp_path / "00000" / "00000000.mp4").touch()
    (row,) = read("lvbench", BenchmarkFiles(annotations=tmp_path / "a.jsonl", videos=tmp_path))
    assert isinstance(row, RowError) and "no video 'gone'" in str(row)


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
