"""`vvt data validate`: every fault of a row is told by its number, and the good rows are kept whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.row_files import make_row, read_rows, write_rows
from tests.verl_plugin.harness import model_dir
from tests.videos.files import MakeVideo, write_video
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Sample
from verl_video_tools.data.rows import RowMethods
from verl_video_tools.data.validate import PromptCosts, validate_file
from verl_video_tools.verl_plugin.model_tokens import load_model_tokens
from verl_video_tools.video import Video


@pytest.fixture
def video(make_video: MakeVideo) -> str:
    """100 seconds."""
    return make_video(3000)


def problems_of(row: dict[str, Any], tmp_path: Path) -> tuple[str, ...]:
    (report,) = validate_file(write_rows(tmp_path / "row.parquet", [row]))
    return report.problems


def test_a_good_row_has_no_problems(video: str, tmp_path: Path) -> None:
    assert problems_of(make_row(video, video_segment=[3.0, 7.5]), tmp_path) == ()
    assert (
        problems_of(make_row(video, "12.5", question="How many?", question_type="numeric", options=None), tmp_path)
        == ()
    )
    assert problems_of(make_row(video, "He left.", question="Why?", question_type="open", options=None), tmp_path) == ()
    assert problems_of(make_row(video, agent_name="tool_agent"), tmp_path) == ()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data_source": ""}, "data_source is missing"),
        ({"agent_name": "framethinkr"}, "agent_name 'framethinkr' is no method; there are: framethinker"),
        ({"prompt": []}, "prompt must be a list of chat messages"),
        ({"prompt": [{"role": "user"}]}, "prompt must be a list of chat messages"),
        ({"prompt": None}, "prompt must be a list of chat messages"),
        ({"reward_model": {"style": "rule", "ground_truth": None}}, "reward_model.ground_truth is missing"),
        ({"reward_model": {"style": "rule", "ground_truth": " "}}, "reward_model.ground_truth is empty"),
        (
            {"reward_model": {"style": "rule", "ground_truth": "C"}},
            "must be the letter or the text of an option, got 'C'",
        ),
        ({"reward_model": {"style": "rule", "ground_truth": "a chair"}}, None),
        ({"reward_model": {"style": "rule", "ground_truth": "a table"}}, "must be the letter or the text of an option"),
    ],
)
def test_faults_of_columns(change: dict[str, Any], named: str | None, video: str, tmp_path: Path) -> None:
    problems = problems_of({**make_row(video), **change}, tmp_path)
    if named is None:
        assert problems == ()
    else:
        assert len(problems) == 1 and named in problems[0]


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"question": ""}, "extra_info.question is missing or empty"),
        ({"question": "What does the woman carry?"}, "does not tell option A, 'a lamp'"),
        (
            {"question_type": "essay"},
            "question_type must be one of mc, numeric, regression, open, segment, got 'essay'",
        ),
        ({"question_type": "regression"}, "the truth of an estimate must be a number, got 'B'"),
        ({"question_type": "numeric"}, "the truth of a numeric question must be a number, got 'B'"),
        ({"options": '["a lamp"'}, "the row is invalid"),
        ({"video_path": "gone.mp4"}, "no such video file: gone.mp4"),
        ({"video_segment": [7.0, 3.0]}, "0 <= start < end, got [7, 3]"),
        ({"video_segment": [0.0, float("nan")]}, "0 <= start < end, got [0, nan]"),
        ({"video_segment": [3.0]}, "the row is invalid"),
    ],
)
def test_faults_of_extra_info(extra: dict[str, Any], named: str, video: str, tmp_path: Path) -> None:
    row = make_row(video)
    problems = problems_of({**row, "extra_info": {**row["extra_info"], **extra}}, tmp_path)
    assert problems and named in problems[0]


def test_the_command_keeps_the_good_rows(video: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_row(video), make_row("gone.mp4", "C"), make_row(video, "A")]
    source = write_rows(tmp_path / "rows.parquet", rows)
    out, report = tmp_path / "good.parquet", tmp_path / "report.jsonl"
    assert run(["data", "validate", str(source), "--out", str(out), "--report", str(report)]) == 1
    printed = capsys.readouterr()
    assert f"{source}: 3 rows, 1 bad" in printed.out
    assert printed.err.splitlines() == [
        "row 1: the truth of a multiple-choice question must be the letter or the text of an option, got 'C' for "
        "options ['a lamp', 'a chair']",
        "row 1: no such video file: gone.mp4",
    ]
    assert read_rows(out) == [rows[0], rows[2]]
    assert [bool(json.loads(line)["problems"]) for line in report.read_text().splitlines()] == [False, True, False]
    assert run(["data", "validate", str(out)]) == 0
    assert run(["data", "validate", str(tmp_path / "none.parquet")]) == 2
    assert run(["data", "validate", str(out), "--min-pixels", "3136"]) == 2
    assert run(["data", "validate", str(out), "--set", "no_such_field=3"]) == 2
    assert run(["data", "validate", str(out), "--set", "nomethod.initial_frames=3"]) == 2


@pytest.mark.parametrize("options", [[], ["--out", "out.parquet"], ["--probe"]])
@pytest.mark.parametrize("table", [pa.Table.from_pylist([make_row("a.mp4")]).slice(0, 0), pa.table({"a": []})])
def test_a_file_without_rows_is_bad(
    table: pa.Table,
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(table, "rows.parquet")
    assert run(["data", "validate", "rows.parquet", *options]) == 1
    assert "rows.parquet has no rows" in capsys.readouterr().err
    assert not Path("out.parquet").exists()


@pytest.mark.parametrize("folder", ["out", "."])
def test_good_rows_are_not_written_to_a_folder(
    folder: str, video: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(folder).mkdir(exist_ok=True)
    write_rows(Path("rows.parquet"), [make_row(video)])
    assert run(["data", "validate", "rows.parquet", "--out", folder]) == 2
    assert capsys.readouterr().err == f"vvt: cannot write {folder}: it is a folder; name a file\n"
    assert not list(tmp_path.glob("*.partial"))


TRUTHS = ["(B)", "B.", "b", " B ", "a chair", "B. a chair", "a foul", "C", "a lamp or a chair"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["framethinker", "videozoomer", "longvt", "framemind", "videobrain"])
@pytest.mark.parametrize("given", ["mc", None])
def test_every_form_of_a_truth_is_canonical_or_refused_by_name(
    name: str, given: str | None, video: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [make_row(video, truth, name, question_type=given, classification="direct") for truth in TRUTHS]
    source, report = write_rows(tmp_path / "rows.parquet", rows), tmp_path / "report.jsonl"
    assert run(["data", "validate", str(source), "--report", str(report)]) == 1
    printed = capsys.readouterr()
    assert printed.out == f"{source}: 9 rows, 3 bad\n"
    no_option = "the truth of a multiple-choice question must be the letter or the text of an option, got"
    assert printed.err.splitlines() == [
        f"row {number}: {no_option} {TRUTHS[number]!r} for options ['a lamp', 'a chair']" for number in (6, 7, 8)
    ]
    assert [json.loads(line)["truth"] for line in report.read_text().splitlines()] == ["B"] * 6 + TRUTHS[6:]


def test_each_rows_own_method_is_asked(video: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numeric = {"question": "How long?", "question_type": "numeric", "options": None}
    rows = [
        make_row(video, "1,000.0", **numeric),
        make_row(video, "12 km", **numeric),
        make_row(video, "12 km", "longvt", **numeric),
        make_row(video, agent_name="videobrain"),
        make_row(video, agent_name="videobrain", classification="f"),
    ]
    source = write_rows(tmp_path / "rows.parquet", rows)
    assert run(["data", "validate", str(source)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in told] == ["row 1", "row 3"]
    assert "answer_grading=exact" in told[0] and "classification '' is no class" in told[1]

    of_one_method = ["--set=framethinker.answer_grading=choice"]
    of_one_method += [f"--set=videobrain.{name}_behavior=[0,0,0,0]" for name in ("direct", "adaptive", "active")]
    assert run(["data", "validate", str(source), *of_one_method]) == 0
    unnamed = [{name: value for name, value in row.items() if name != "agent_name"} for row in rows[:2]]
    source = write_rows(tmp_path / "unnamed.parquet", unnamed)
    assert run(["data", "validate", str(source)]) == 0
    assert run(["data", "validate", str(source), "--method", "framethinker"]) == 1
    assert run(["data", "validate", str(source), "--method", "framethinker", "--set", "answer_grading=choice"]) == 0


def test_a_folder_made_meanwhile_is_told(video: str, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    reports = validate_file(write_rows(tmp_path / "rows.parquet", [make_row(video)]), out=out)
    next(reports)
    out.mkdir()
    with pytest.raises(UsageError, match=r"cannot write .*out\.parquet: Is a directory; name a file in a folder"):
        next(reports)
    assert not list(tmp_path.glob("*.partial"))


def test_probing_finds_bad_files_and_segments_beyond_the_end(
    video: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_text("no video")
    segments = [[1.0, 100.5], [1.0, 150.0], [1.0, 2.0]]
    rows = [
        make_row(path, video_segment=segment) for path, segment in zip([video, video, broken], segments, strict=True)
    ]
    source = write_rows(tmp_path / "rows.parquet", rows)
    assert run(["data", "validate", str(source)]) == 0
    assert run(["data", "validate", str(source), "--probe"]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("row ")]
    assert lines[0] == "row 1: video_segment ends at 150 s, the video at 100.0 s"
    assert lines[1].startswith("row 2: ") and "broken.mp4" in lines[1] and len(lines) == 2


def test_probing_names_a_download_that_broke_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = write_video(tmp_path / "cut.mkv")
    cut.write_bytes(cut.read_bytes()[:-1000])
    source = write_rows(tmp_path / "rows.parquet", [make_row(cut)])
    assert run(["data", "validate", str(source), "--probe"]) == 1
    assert "the file lacks 1000 bytes at its end; download it again" in capsys.readouterr().err


@pytest.mark.slow
def test_a_probed_video_is_found_however_its_path_is_written(
    video: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("videos").mkdir()
    Path("videos/a.mp4").symlink_to(video)
    paths = ("videos/a.mp4", "./videos/a.mp4", "videos//a.mp4")
    rows = [make_row(path, video_segment=[1.0, 150.0]) for path in paths]
    source = write_rows(tmp_path / "rows.parquet", rows)
    assert run(["data", "validate", str(source), "--probe"]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("row ")]
    assert lines == [f"row {number}: video_segment ends at 150 s, the video at 100.0 s" for number in range(3)]


@pytest.mark.slow
def test_prompts_are_counted_by_the_models_own_tokens(
    video: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The initial frames of 64x36 pixels take a handful of tokens a frame; a question of 3000 words does not fit."""
    lengthy = make_row(video, question="word " * 3000 + "\nA. a lamp\nB. a chair")
    source = write_rows(tmp_path / "rows.parquet", [make_row(video), lengthy, make_row(video, agent_name="framemind")])
    report = tmp_path / "report.jsonl"
    command = ["data", "validate", str(source), "--processor", model_dir(), "--report", str(report)]
    assert run(command) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("row ")]
    assert len(lines) == 1 and lines[0].startswith("row 1: the prompt takes ") and "reserves 8192" in lines[0]
    costs = [json.loads(line)["cost"] for line in report.read_text().splitlines()]
    assert costs[0]["images"] == 8 and costs[0]["max_images"] == 60 and 8 < costs[0]["tokens"] < 2000

    tokens = costs[0]["tokens"]  # the limits of a run take the place of the recipe's
    for option, bad, words in (
        (f"--max-prompt-length={tokens - 1}", "row 0: ", f"takes {tokens} tokens, the run reserves {tokens - 1}"),
        (f"--max-prompt-length={tokens}", "row 1: ", f"the run reserves {tokens}"),
        ("--max-images=7", "row 0: ", "the prompt takes 8 images, the run allows 7"),
    ):
        assert run([*command, "--overwrite", option]) == 1
        first = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("row "))
        assert first.startswith(bad) and words in first
    assert run(["data", "validate", str(source), "--max-images", "7"]) == 2

    sample, info = Sample.from_row(make_row(video)), Video(video).info
    model = load_model_tokens(model_dir())
    rungs = [
        PromptCosts(model, RowMethods(settings={"rung": rung})).of(sample, "framemind", info) for rung in range(1, 9)
    ]
    assert len({rung.tokens for rung in rungs}) > 1
    assert costs[2]["tokens"] == max(rung.tokens for rung in rungs), "the dearest rung of the ladder counts"
