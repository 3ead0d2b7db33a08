"""The commands and the code of docs/own-data.md, run on the table that stands on it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.data.row_files import read_rows
from tests.data.table.tables import touch, write_parquet
from verl_video_tools.cli.main import run
from verl_video_tools.core.truths import QuestionType
from verl_video_tools.data.table import FIELDS, NEEDED
from verl_video_tools.data.validate import validate_file

PAGE = (Path(__file__).parents[3] / "docs" / "own-data.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tables of the page, its dialogue, their videos, and a data set of the Hub."""
    (dialogues,) = blocks("json")
    for name, table in zip(("questions.csv", "frames.csv"), blocks("csv"), strict=True):
        (tmp_path / name).write_text(table)
    (tmp_path / "dialogues.json").write_text(dialogues)
    touch(tmp_path, "videos/kitchen.mp4", "videos/hall.mp4", "my_dataset/a.mp4")
    touch(tmp_path, "frames/hall/1.jpg", "frames/k/1.jpg", "frames/k/5.jpg")
    for video in (tmp_path / "videos").iterdir():
        video.write_text(video.name)  # split tells videos apart by their content, too
    for split in ("train", "test"):
        record = {"question": f"Who is in {split}?", "answer": "a boy", "video": "a.mp4"}
        write_parquet(tmp_path / f"my_dataset/data/{split}-00000-of-00001.parquet", [record])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    assert len(commands) == 9 and all(command.startswith("vvt ") for command in commands)
    for command in commands:
        assert run(shlex.split(command)[1:]) == 0, command
    rows = read_rows(folder / "rows.parquet")
    types: list[QuestionType] = ["mc", "numeric", "open"]
    assert [row["extra_info"]["question_type"] for row in rows] == types
    assert [row["extra_info"]["video_segment"] for row in rows] == [[2.0, 7.5], None, [4.0, 9.0]]
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["B", "3", "He hears a dog"]
    for name in ("mapped", "elsewhere"):
        for row, same in zip(read_rows(folder / f"{name}.parquet"), rows, strict=True):
            assert row["extra_info"] == same["extra_info"]
    of_folder, of_list = read_rows(folder / "of_frames.parquet")
    assert of_folder["extra_info"]["video_path"] == f"{folder}/frames/hall#fps=2"
    assert Path(of_list["extra_info"]["video_path"]).parent == folder / "of_frames_frames"
    (hub,) = read_rows(folder / "hub.parquet")
    assert (hub["extra_info"]["question"], hub["extra_info"]["split"]) == ("Who is in train?", "train")
    assert hub["extra_info"]["video_path"] == f"{folder}/my_dataset/a.mp4"
    assert len(read_rows(folder / "train.parquet")) + len(read_rows(folder / "test.parquet")) == 3
    assert run(shlex.split(commands[0])[1:]) == 2, "the file exists"
    (asked,), (taught,) = read_rows(folder / "questions.parquet"), read_rows(folder / "cold_start.parquet")
    assert (asked["reward_model"]["ground_truth"], asked["extra_info"]["question_type"]) == ("3", "numeric")
    assert len(taught["turns"]) == 2
    assert not [report for report in validate_file(folder / "cold_start.parquet") if report.problems]


def test_the_code_runs(folder: Path) -> None:
    exec(compile("".join(blocks("python")), "own-data.md", "exec"), {})
    assert [row["extra_info"]["question_type"] for row in read_rows(folder / "made.parquet")] == [
        "mc",
        "numeric",
        "segment",
    ]
    assert [len(row["turns"]) for row in read_rows(folder / "examples.parquet")] == [2]
    for name in ("made", "examples"):
        assert not [report for report in validate_file(folder / f"{name}.parquet") if report.problems]


def test_the_page_lists_the_fields() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \| (?:yes)? ?\|", PAGE, flags=re.MULTILINE)) == FIELDS
    assert [field for field in FIELDS if f"| `{field}` | yes |" in PAGE] == [name for name in FIELDS if name in NEEDED]
