"""`vvt data convert --from table`: good rows are written, bad ones told, and nothing before the user agrees."""

from __future__ import annotations

import io
import json
import string
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.row_files import read_rows
from tests.data.table.tables import convert, touch, write_csv, write_jsonl, write_parquet
from tests.video.test_frame_files import write_frames
from tests.videos.files import read_number
from verl_video_tools.core.machine import page
from verl_video_tools.core.types import Sample
from verl_video_tools.data.validate import probe_videos, validate_file
from verl_video_tools.video import Video

QUESTIONS = [
    {"question": "What does she carry?", "options": ["a lamp", "a chair"], "answer": "B", "video": "videos/a.mp4"},
    {"question": "How many enter?", "options": None, "answer": "3", "video": "videos/b.mp4"},
    {"question": "Who is it?", "options": None, "answer": "a boy", "video": "videos/b.mp4"},
    {"question": "When?", "options": None, "answer": "[2.5, 7]", "video": "videos/a.mp4"},
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    touch(tmp_path, "videos/a.mp4", "videos/b.mp4")
    return write_csv(tmp_path / "qa.csv", QUESTIONS)


def test_a_table_becomes_rows(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "rows.parquet"
    assert convert(table, target, "--yes", "--method", "longvt", "--split", "mine") == 0
    assert f"{target}: 4 rows, 0 skipped" in capsys.readouterr().out
    rows = read_rows(target)
    assert [row["extra_info"]["question_type"] for row in rows] == ["mc", "numeric", "open", "segment"]
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["B", "3", "a boy", "[2.5, 7]"]
    assert rows[0]["extra_info"]["question"] == "What does she carry?\nA. a lamp\nB. a chair"
    for row in rows:
        assert (row["agent_name"], row["data_source"], row["extra_info"]["split"]) == ("longvt", "qa", "mine")
        assert Path(row["extra_info"]["video_path"]).is_file() and Sample.from_row(row)
    assert not [report for report in validate_file(target) if report.problems]


def test_an_answer_between_tags_is_what_stands_there(tmp_path: Path) -> None:
    touch(tmp_path, "videos/b.mp4")
    table = write_csv(tmp_path / "qa.csv", [{**QUESTIONS[2], "answer": "<answer>a boy</answer>"}])
    assert convert(table, tmp_path / "rows.parquet", "--yes") == 0
    assert read_rows(tmp_path / "rows.parquet")[0]["reward_model"]["ground_truth"] == "a boy"


def test_an_answer_in_a_box_is_what_stands_there(tmp_path: Path) -> None:
    touch(tmp_path, "videos/b.mp4")
    table = write_csv(tmp_path / "qa.csv", [{**QUESTIONS[1], "answer": r"\boxed{3}"}])
    assert convert(table, tmp_path / "rows.parquet", "--yes") == 0
    (row,) = read_rows(tmp_path / "rows.parquet")
    assert (row["reward_model"]["ground_truth"], row["extra_info"]["question_type"]) == ("3", "numeric")


def test_marks_of_other_trainers_around_a_question_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touch(tmp_path, "videos/a.mp4")
    texts = ["<video>\nWhat is it?", "What is it? <image>", "<image><image> What is it?", "What does <video> show?"]
    table = write_jsonl(tmp_path / "qa.jsonl", [{**QUESTIONS[0], "question": text} for text in texts])
    assert convert(table, tmp_path / "rows.parquet", "--yes") == 0
    questions = [row["extra_info"]["question"].splitlines()[0] for row in read_rows(tmp_path / "rows.parquet")]
    assert questions == ["What is it?"] * 3 + ["What does <video> show?"]
    assert "1 questions hold <video> or <image> amid their text" in capsys.readouterr().out


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("has_lines", [False, True])
def test_answers_that_are_numbers_of_options(first: int, has_lines: bool, tmp_path: Path) -> None:
    touch(tmp_path, "videos/a.mp4")
    texts = ["a lamp", "a chair", "7"]
    asked = {"question": "What?\nA. a lamp\nB. a chair\nC. 7"} if has_lines else {"question": "What?", "options": texts}
    records = [{**asked, "answer": number, "video": "videos/a.mp4"} for number in range(-1, 5)]
    table = write_jsonl(tmp_path / "qa.jsonl", [*records, {**records[0], "answer": "a chair"}])
    assert convert(table, tmp_path / "rows.parquet", "--yes", "--first-option", str(first)) == 0
    truths = [row["reward_model"]["ground_truth"] for row in read_rows(tmp_path / "rows.parquet")]
    assert truths == ["A", "B", "C", "B"]


@pytest.mark.parametrize("instruction", ["", "\nAnswer with the number."])
def test_options_that_the_question_numbers_get_letters(instruction: str, tmp_path: Path) -> None:
    touch(tmp_path, "videos/a.mp4")
    numbered, steps = "What?\n1. a lamp\n2. a chair" + instruction, "How many steps?\n1. cut\n2. fry\nCount them all."
    records = [
        {"question": numbered, "answer": "2"},
        {"question": numbered, "answer": 1},
        {"question": numbered, "answer": "3"},
        {"question": numbered, "answer": "2", "type": "numeric"},
        {"question": steps, "answer": "2"},
    ]
    table = write_jsonl(tmp_path / "qa.jsonl", [{"type": None, "video": "videos/a.mp4", **asked} for asked in records])
    assert convert(table, tmp_path / "rows.parquet", "--yes") == 0
    rows = read_rows(tmp_path / "rows.parquet")
    read = [(row["extra_info"]["question_type"], row["reward_model"]["ground_truth"]) for row in rows]
    assert read == [("mc", "B"), ("mc", "A"), ("numeric", "3"), ("numeric", "2"), ("numeric", "2")]
    assert rows[0]["extra_info"]["question"] == "What?\nA. a lamp\nB. a chair"
    assert rows[3]["extra_info"]["question"].startswith(numbered), "only an answer among them makes them options"


def test_numbers_of_options_without_their_first_say_what_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touch(tmp_path, "videos/a.mp4")
    records = [{**QUESTIONS[0], "answer": answer} for answer in ("1", "B")]
    assert convert(write_jsonl(tmp_path / "qa.jsonl", records), tmp_path / "rows.parquet", "--yes") == 0
    assert "row 0: the answer 1 is none of the options; if it is" in capsys.readouterr().err
    assert read_rows(tmp_path / "rows.parquet")[0]["reward_model"]["ground_truth"] == "B"


@pytest.mark.parametrize("cell", [["videos/a.mp4"], '["videos/a.mp4"]'])
def test_a_list_of_one_video_is_that_video(cell: Any, tmp_path: Path) -> None:
    """As LLaMA-Factory, EasyR1 and verl name the videos of a question."""
    touch(tmp_path, "videos/a.mp4")
    table = write_jsonl(tmp_path / "qa.jsonl", [{**QUESTIONS[0], "video": cell}])
    assert convert(table, tmp_path / "rows.parquet", "--yes") == 0
    assert read_rows(tmp_path / "rows.parquet")[0]["extra_info"]["video_path"] == str(tmp_path / "videos/a.mp4")


def test_types_that_were_guessed_are_listed(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spans = [{"question": "When?", "answer": text, "video": "videos/a.mp4"} for text in ("0:32-0:38", "a while")]
    write_jsonl(tmp_path / "qa.jsonl", [*QUESTIONS, *spans])
    assert convert(tmp_path / "qa.jsonl", tmp_path / "rows.parquet", "--yes") == 0
    shown = capsys.readouterr().out
    assert "1 mc (such as 'B'), 1 numeric (such as '3'), 3 open (such as 'a boy'), 1 segment" in shown
    assert "1 of the open answers look like segments, such as '0:32-0:38'" in shown


def test_it_is_the_same_whichever_way_the_table_is_written(table: Path, tmp_path: Path) -> None:
    write_parquet(tmp_path / "qa.parquet", QUESTIONS)
    write_jsonl(tmp_path / "qa.jsonl", QUESTIONS)
    (tmp_path / "qa.json").write_text(json.dumps(QUESTIONS))
    rows = []
    for suffix in ("csv", "jsonl", "json", "parquet"):
        assert convert(tmp_path / f"qa.{suffix}", tmp_path / f"{suffix}.parquet", "--yes") == 0
        rows.append(read_rows(tmp_path / f"{suffix}.parquet"))
    assert rows[0] == rows[1] == rows[2] == rows[3]


def test_paths_start_from_the_table_wherever_the_command_runs(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert convert(Path("../qa.csv"), Path("rows.parquet"), "--yes") == 0
    assert f"relative paths of videos start from {tmp_path}" in capsys.readouterr().out
    assert read_rows(Path("rows.parquet"))[0]["extra_info"]["video_path"] == f"{tmp_path}/videos/a.mp4"
    assert convert(Path("../qa.csv"), Path("more.parquet"), "--yes", "--videos", "none") == 2
    assert "none: no such folder" in capsys.readouterr().err


def test_columns_and_rows_are_shown_and_nothing_is_written(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal to ask at `--yes` is needed; at one, only yes is."""
    target = tmp_path / "rows.parquet"
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert convert(table, target, "--map", "segment=") == 2
    shown = capsys.readouterr()
    for text in (
        "  question: question",
        "  | B. a chair",
        "truth 'B', type mc",
        "relative paths",
    ):
        assert text in shown.out
    assert "nothing was written, because there is no terminal to ask at: add --yes" in shown.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, code in (("", 2), ("n\n", 2), ("no", 2), ("yes\n", 0)):
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdin", terminal)
        assert convert(table, target) == code
        assert target.exists() == (code == 0)


def test_nothing_is_overwritten(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "rows.parquet"
    target.write_text("mine")
    assert convert(table, target, "--yes") == 2
    assert "exists; name another file, or replace it with --overwrite" in capsys.readouterr().err
    assert target.read_text() == "mine"
    assert convert(table, target, "--yes", "--overwrite") == 0
    rows = read_rows(target)
    assert convert(target, target, "--yes", "--overwrite") == 2
    assert "is the source; name another file" in capsys.readouterr().err
    assert read_rows(target) == rows


def test_bad_rows_are_told_and_good_ones_kept(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"id": 1, "options": ["x", "y"], "question": "Who?", "answer": "B", "video": "videos/a.mp4", "segment": ""}
    bad = [
        ({"video": "videos/z.mp4"}, "no video 'videos/z.mp4' (looked for"),
        ({"video": ""}, "no video is named"),
        ({"question": " "}, "the column 'question' (question) is empty"),
        ({"answer": None}, "the column 'answer' (answer) is empty"),
        ({"answer": "E"}, "the field 'answer' is none of the options: 'E'"),
        ({"options": "x, y"}, "the options cannot be separated, got 'x, y'; write them as a JSON list"),
        ({"segment": "7 - 2"}, "the segment must name one start and end"),
        ({"segment": "[[1, 2], [4, 6]]"}, "the segment must name one start and end"),
        (
            {"options": None, "type": "causal"},
            "question_type must be one of mc, numeric, regression, open, segment, got 'c",
        ),
        ({"options": ["x", "y", "y"]}, "the options B and C are equal, 'y'"),
        ({"options": ["x", "", "y"]}, "option 2 is empty"),
        ({"options": None, "type": "mc", "answer": "yes"}, "must be the letter or the text of an option, got 'yes'"),
        ({"options": None, "type": "regression", "answer": "three"}, "the truth of an estimate must be a number"),
        ({"options": None, "type": "numeric", "answer": "a few"}, "the truth of a numeric question must be a number"),
        ({"options": None, "type": "segment", "answer": "soon"}, "the segment must name one start and end"),
        ({"options": None, "type": "segment", "answer": "[[1, 2], [3, 4]]"}, "the segment must name one start"),
    ]
    records = [good, *({**good, "id": 2 + place, **fault} for place, (fault, _) in enumerate(bad))]
    records.append({**good, "id": 99, "type": "mc"})
    target = tmp_path / "rows.parquet"
    source = write_csv(tmp_path / "bad.csv", records)
    assert convert(source, target, "--yes", "--map", "type=type") == 0
    assert [row["extra_info"]["question_id"] for row in read_rows(target)] == ["1", "99"]
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(bad)
    for number, (line, (_, message)) in enumerate(zip(told, bad, strict=True), start=1):
        assert line.startswith(f"skipped {source}: row {number}: ") and message in line


def test_the_answer_of_a_segment_question_may_be_written_as_a_segment(table: Path, tmp_path: Path) -> None:
    records = [
        {**QUESTIONS[3], "answer": answer, "type": "segment", "video": "videos\\a.mp4"}
        for answer in ("0:04-0:09", "[4, 9]", "from 4 s to 9 s")
    ]
    assert convert(write_csv(tmp_path / "s.csv", records), tmp_path / "rows.parquet", "--yes") == 0
    rows = read_rows(tmp_path / "rows.parquet")
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["[4.0, 9.0]"] * 3
    assert {row["extra_info"]["video_path"] for row in rows} == {str(tmp_path / "videos" / "a.mp4")}


def test_many_bad_rows_are_counted(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [QUESTIONS[0], *({**QUESTIONS[0], "video": f"{number}.mp4"} for number in range(30))]
    assert convert(write_csv(tmp_path / "bad.csv", records), tmp_path / "rows.parquet", "--yes") == 0
    printed = capsys.readouterr()
    assert printed.err.count("no video") == 20 and "skipped 10 more" in printed.err
    assert "rows.parquet: 1 rows, 30 skipped" in printed.out
    assert "30 of the first 31 rows cannot be written, such as row 1: no video" in printed.out
    assert "row 2" not in printed.out, "each is named once, where it is left out"


def test_a_table_without_a_good_row(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_csv(tmp_path / "bad.csv", [{**QUESTIONS[0], "video": "z.mp4"}])
    assert convert(source, tmp_path / "rows.parquet") == 2
    assert "gives no row; the first was left out" in capsys.readouterr().err
    assert not (tmp_path / "rows.parquet").exists()


def test_option_lines_in_the_cells(table: Path, tmp_path: Path) -> None:
    records = [
        {"question": "Who?\n(A) a boy\n(B) a girl", "answer": "B", "video": "videos/a.mp4"},
        {"question": "Who?", "answer": "A", "video": "videos/a.mp4"},
    ]
    assert convert(write_jsonl(tmp_path / "o.jsonl", records), tmp_path / "rows.parquet", "--yes") == 0
    first, second = read_rows(tmp_path / "rows.parquet")
    assert first["extra_info"]["options"] == ["a boy", "a girl"] and first["reward_model"]["ground_truth"] == "B"
    assert (second["extra_info"]["question_type"], second["extra_info"]["options"]) == ("mc", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--turns", "--method", "longvt"],
            "--turns cannot be used with --from table",
        ),
        (["--method", "magic"], "no method 'magic'"),
        (["--map", "x"], "--map takes FIELD=COLUMN"),
        (["--set", "x=1"], "--set cannot be used with --from"),
    ],
)
def test_bad_usage(
    options: list[str], message: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(table, tmp_path / "rows.parquet", "--yes", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "rows.parquet").exists()


TEXTS = st.text(st.characters(categories=("L", "N", "P", "Zs")), min_size=1, max_size=12).filter(
    lambda text: text.strip()
)


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """A multiple-choice question, its answer as a letter or a text."""
    options = draw(st.lists(st.text("abcdefgh", min_size=3, max_size=6), min_size=2, max_size=6, unique=True))
    return {"question": draw(TEXTS) + "?", "options": options, "place": draw(st.integers(0, len(options) - 1))}


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(questions(), min_size=1, max_size=5),
    st.sampled_from(["letter", "text"]),
    st.sampled_from(["csv", "jsonl"]),
)
def test_questions_come_back(asked: list[dict[str, Any]], form: str, kind: str) -> None:
    """Against the questions themselves, whatever characters they have."""
    forms = {
        "letter": lambda one: string.ascii_uppercase[one["place"]],
        "text": lambda one: one["options"][one["place"]],
    }
    with TemporaryDirectory() as name:
        folder = touch(Path(name), "v.mp4")
        records = [{**one, "answer": forms[form](one), "video": "v.mp4"} for one in asked]
        write = {"csv": write_csv, "jsonl": write_jsonl}[kind]
        assert convert(write(folder / f"t.{kind}", records), folder / "rows.parquet", "--yes") == 0
        rows = read_rows(folder / "rows.parquet")
    assert [row["extra_info"]["options"] for row in rows] == [one["options"] for one in asked]
    assert [row["reward_model"]["ground_truth"] for row in rows] == [
        string.ascii_uppercase[one["place"]] for one in asked
    ]
    assert [row["extra_info"]["question"].splitlines()[0] for row in rows] == [one["question"].strip() for one in asked]


def test_signs_that_would_steer_a_terminal_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    touch(tmp_path, "a.mp4")
    good = {**QUESTIONS[2], "video": "a.mp4"}
    source = write_jsonl(tmp_path / "t.jsonl", [{**good, "question": "Who\x1b[2J?\ud800"}, good])
    assert convert(source, tmp_path / "rows.parquet", "--yes") == 0
    assert "Who[2J?" in capsys.readouterr().out and len(read_rows(tmp_path / "rows.parquet")) == 1


def test_rows_are_no_table(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(table, tmp_path / "rows.parquet", "--yes") == 0
    assert convert(tmp_path / "rows.parquet", tmp_path / "again.parquet", "--yes") == 2
    assert f"holds rows already ({page('rows')})" in capsys.readouterr().err


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["v.mp4", "v", "A", "B", "[1, 2]", "[[1,2],[3", "{'A': 1, 'B': 2}", "x|y", "A. x\nB. y", "mc", "9:99"]
    ),
    st.lists(st.one_of(st.none(), st.text(max_size=5), st.floats(), st.lists(st.integers(), max_size=3)), max_size=4),
    st.dictionaries(st.text(max_size=3), st.one_of(st.text(max_size=5), st.none()), max_size=3),
)
NAMES = st.sampled_from(
    ["question", "answer", "video", "options", "segment", "start", "end", "id", "type", "a", "b", "x"]
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(NAMES, CELLS, max_size=8), min_size=1, max_size=4))
def test_any_cells_are_read_or_told(records: list[dict[str, Any]]) -> None:
    """No cell ends in anything but rows that a run can read, or a message."""
    records = [{"question": "Who?", "answer": "A", "video": "v.mp4"}, *records]
    with TemporaryDirectory() as name:
        folder, target = touch(Path(name), "v.mp4"), Path(name) / "rows.parquet"
        code = convert(write_jsonl(folder / "t.jsonl", records), target, "--yes")
        assert code in (0, 2) and target.exists() == (code == 0)
        for row in read_rows(target) if code == 0 else ():
            assert Sample.from_row(row).question


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=120), st.sampled_from(["csv", "tsv", "jsonl", "json", "parquet"]))
def test_any_bytes_are_read_or_told(content: bytes, suffix: str) -> None:
    with TemporaryDirectory() as name:
        source = touch(Path(name), "v.mp4") / f"t.{suffix}"
        head = b"question,answer,video\n" if suffix == "csv" else b""
        source.write_bytes(head + content)
        assert convert(source, Path(name) / "rows.parquet", "--yes") in (0, 2)


def frames_of(path: str, times: list[float]) -> list[int]:
    """The numbers that the images of a video show, which begins each at its time."""
    with Video(path) as video:
        assert video.timestamps_seconds().tolist() == times
        return [read_number(frame) for frame in video.frames_at_indices(range(len(times))).frames_THWC]


@pytest.mark.parametrize("write", [write_csv, write_jsonl, write_parquet])
def test_videos_of_images(write: Callable[..., Path], tmp_path: Path) -> None:
    write_frames(tmp_path / "k", [f"{number}.png" for number in range(9, 13)])
    listed = [f"k/{number}.png" for number in (9, 11)]
    asked = {"question": "What?", "answer": "a boy"}
    records = [
        {**asked, "video": "k", "fps": 2.5, "times": None},
        {**asked, "video": "k#fps=4", "fps": None, "times": None},
        {**asked, "video": "k", "fps": None, "times": [0, 1, 4, 6]},
    ]
    of_lists = [
        {**asked, "video": listed, "fps": None, "times": [0, 0.1]},
        {**asked, "video": listed, "fps": "30000/1001", "times": None},
    ]
    for number, some in enumerate((records, of_lists)):  # a column of parquet holds one kind
        target = tmp_path / f"rows{number}.parquet"
        assert convert(write(tmp_path / f"qa{number}.{write.__name__[6:]}", some), target, "--yes") == 0
        assert not [each for each in validate_file(target, videos=probe_videos(target, 1, 10)) if each.problems]
    paths = [row["extra_info"]["video_path"] for name in "01" for row in read_rows(tmp_path / f"rows{name}.parquet")]
    assert paths[:2] == [f"{tmp_path}/k#fps=2.5", f"{tmp_path}/k#fps=4"]
    assert frames_of(paths[0], [0, 0.4, 0.8, 1.2]) == [0, 1, 2, 3]
    assert frames_of(paths[2], [0, 1, 4, 6]) == [0, 1, 2, 3]
    assert frames_of(paths[3], [0, 0.1]) == [0, 2]
    assert frames_of(paths[4], [0, 1001 / 30000]) == [0, 2]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"video": "k"}, "frames need a rate (fps), or times in seconds"),
        ({"video": "k", "fps": -2}, "must be a positive number, got '-2'"),
        ({"video": "k", "fps": 2, "times": [0, 1]}, "got both"),
        ({"video": "k", "times": [0, 1, 2]}, "2 frames need 2 times"),
        ({"video": ["k/1.png", "k/2.png"], "times": [0, 0]}, "must increase"),
        ({"video": ["k/1.png", "k/7.png"], "fps": 2}, "no video 'k/7.png'"),
        ({"video": ["a.mp4", "b.mp4"], "fps": 2}, "a row names one video"),
        ({"video": "empty", "fps": 2, "times": [0]}, "the folder has no image"),
    ],
)
def test_videos_of_images_that_cannot_be_written(
    cells: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touch(tmp_path, "k/1.png", "k/2.png", "a.mp4", "b.mp4", "empty/notes.txt")
    table = write_jsonl(tmp_path / "qa.jsonl", [{"question": "What?", "answer": "a boy", **cells}])
    assert convert(table, tmp_path / "rows.parquet", "--yes") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "rows_frames").exists()


def test_a_rate_beside_video_files_changes_nothing(tmp_path: Path) -> None:
    touch(tmp_path, "videos/a.mp4")
    table = write_jsonl(tmp_path / "qa.jsonl", [{**QUESTIONS[0], "fps": "n/a", "times": "0:10"}])
    assert convert(table, tmp_path / "rows.parquet", "--yes") == 0
    (row,) = read_rows(tmp_path / "rows.parquet")
    assert row["extra_info"]["video_path"] == f"{tmp_path}/videos/a.mp4"
