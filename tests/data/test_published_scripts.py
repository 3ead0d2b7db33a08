"""Where the scripts of benchmarks leave videos and letters."""

from __future__ import annotations

import json
from pathlib import Path

from tests.data.format_cases import SAMPLES
from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import BenchmarkFiles, get_benchmark
from verl_video_tools.data.formats import read_rows as read_annotations
from verl_video_tools.data.formats.entries import Row


def read(name: str, files: BenchmarkFiles) -> list[Row | RowError]:
    return [row for _, row in read_annotations(get_benchmark(name), files)]


def video_of(row: Row | RowError) -> str:
    assert not isinstance(row, RowError), row
    return str(row["extra_info"]["video_path"])


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
