"""The demonstration in the format of Video-MME, read and graded as the benchmark is."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.test_synthetic_rows import SMALL
from verl_video_tools.core.errors import RowError
from verl_video_tools.core.types import AnswerLabel, Sample
from verl_video_tools.data.formats import BenchmarkFiles, get_benchmark, read_rows
from verl_video_tools.data.synthetic_rows import load_rows, make_demo
from verl_video_tools.grading.answers import grade_answer

SAMPLE = Path(__file__).parents[1] / "evaluation" / "samples" / "video_mme.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_demo(tmp_path_factory.mktemp("demo"), **{**SMALL, "num_test_videos": 3, "questions_per_video": 3})


@pytest.mark.slow
def test_the_file_has_the_published_columns(folder: Path) -> None:
    published = pa.Table.from_pylist(json.loads(SAMPLE.read_text())).schema
    table = pq.read_table(folder / "video_mme.parquet")
    assert table.schema.equals(published)
    assert table["question_id"].to_pylist() == [f"00{video}-{number}" for video in (1, 2, 3) for number in (1, 2, 3)]


async def test_its_reader_makes_the_questions_of_the_test_split_and_gold_answers_are_right(folder: Path) -> None:
    files = BenchmarkFiles(annotations=folder / "video_mme.parquet", videos=folder / "videos")
    read = [row for _, row in read_rows(get_benchmark("video-mme"), files)]
    asked = load_rows(folder / "test.parquet")
    assert len(read) == len(asked) == 9
    for row, own in zip(read, asked, strict=True):
        assert not isinstance(row, RowError), row
        for name in ("question", "options", "video_path"):
            assert row["extra_info"][name] == own["extra_info"][name]
        sample = Sample.from_row(row)
        assert sample.options is not None
        for letter, option in zip("ABCD", sample.options, strict=True):
            wanted = AnswerLabel.CORRECT if letter == sample.ground_truth else AnswerLabel.INCORRECT
            assert await grade_answer(letter, sample, None) is wanted
            assert await grade_answer(option, sample, None) is wanted


@pytest.mark.slow
def test_the_words_are_the_first_methods_and_the_same_every_time(tmp_path: Path) -> None:
    options = {**SMALL, "num_train_videos": 1, "agent_names": ["longvt", "framethinker"], "open_ended": True}
    one, two = (make_demo(tmp_path / name, **options) / "video_mme.parquet" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    entries = pq.read_table(one).to_pylist()
    assert not any("frames" in entry["question"] for entry in entries) and all(entry["options"] for entry in entries)


def test_long_videos_are_another_group_and_questions_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verl_video_tools.data.synthetic_rows._render_all", lambda *_: None)
    options = {**SMALL, "num_train_videos": 1, "num_test_videos": 30, "questions_per_video": 4, "needle": True}
    entries = pq.read_table(make_demo(tmp_path, **options) / "video_mme.parquet").to_pylist()
    assert len(entries) == 96
    assert {entry["duration"] for entry in entries} == {"short", "medium"}
    assert {entry["sub_category"] for entry in entries} == {"NeedleClips"}
    assert {entry["task_type"] for entry in entries} == {
        "Object Recognition",
        "Temporal Perception",
        "Temporal Reasoning",
    }
