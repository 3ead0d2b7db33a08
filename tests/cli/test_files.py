"""What commands write: never over what is read, and over another file only with --overwrite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verl_video_tools.cli.main import run
from verl_video_tools.cli.options import check_outputs, check_page
from verl_video_tools.core.errors import UsageError

ENDPOINT = ["--base-url", "http://127.0.0.1:1/v1"]
BOTH_MODELS = ["--base-model-url", "http://127.0.0.1:1/v1", "--teacher-url", "http://127.0.0.1:1/v1"]
REPLAY = ["replay", "--method", "framethinker", "--video", "v.mp4", "--question", "q?", "--answer", "B"]
EVAL = ["eval", "--method", "direct", "--rows", "rows.parquet", *ENDPOINT]
WRITTEN = {
    "convert": ["data", "convert", "rows.parquet", "OUT", "--for", "tool_agent"],
    "convert --replay": ["data", "convert", "a.json", "new.parquet", "--from", "longvt-parquet", "--replay", "OUT"],
    "split": ["data", "split", "rows.parquet", "new.parquet", "OUT"],
    "filter": ["data", "filter", "rows.parquet", "OUT", "--band-seconds", "3"],
    "validate": ["data", "validate", "rows.parquet", "--out", "OUT"],
    "validate --report": ["data", "validate", "rows.parquet", "--report", "OUT"],
    "export-sft": ["data", "export-sft", "rows.parquet", "OUT"],
    "export-sft of a run": ["data", "export-sft", "run", "OUT"],
}
"""Commands with a file to write, `OUT`."""
FOLDERS = {
    "eval-table": (["eval-table", "a", "b", "--out", "."], "table.md"),
    "eval": ([*EVAL, "--out", "."], "results.json"),
    "classify": (["data", "classify", "rows.parquet", ".", *BOTH_MODELS], "rl.parquet"),
    "demo": (["demo", "--out", "."], "train.parquet"),
}
"""Commands with a folder to write, and a file there that they would replace."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def named(command: list[str], out: str) -> list[str]:
    return [out if word == "OUT" else word for word in command]


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_that_exists_stays(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = "kept.parquet"
    (folder / out).write_text("mine")
    assert run(named(WRITTEN[name], out)) == 2
    assert f"vvt: {out} exists; name another file, or replace it with --overwrite" in capsys.readouterr().err
    assert run([*named(WRITTEN[name], out), "--overwrite"]) != 0
    assert " exists" not in capsys.readouterr().err, "what fails is then something else: there is no source"


@pytest.mark.parametrize("name", [name for name in WRITTEN if "rows.parquet" in WRITTEN[name]])
def test_no_command_replaces_its_source(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rows.parquet").write_text("rows")
    assert run([*named(WRITTEN[name], "./rows.parquet"), "--overwrite"]) == 2
    assert "rows.parquet is the source; name another file to write" in capsys.readouterr().err
    assert (folder / "rows.parquet").read_text() == "rows"


@pytest.mark.parametrize("name", FOLDERS)
def test_files_of_a_folder_that_is_another_s_stay(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, file = FOLDERS[name]
    (folder / file).write_text("mine")
    assert run(command) == 2
    assert f"vvt: {file} exists" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [file] and (folder / file).read_text() == "mine"


def test_two_outputs_are_two_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "split", "rows.parquet", "a.parquet", "./a.parquet"]) == 2
    assert "a.parquet is to be written twice; name two files" in capsys.readouterr().err


def test_a_page_is_drawn_anew_over_a_page_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("step_000001.jsonl", "page.html", "notes.txt"):
        (folder / name).write_text("")
    check_page(Path("page.html"))
    assert run(["view", ".", "--out", "notes.txt"]) == 2
    assert "notes.txt exists and is not an HTML page; name another file" in capsys.readouterr().err
    assert run([*REPLAY, "--turns", "page.html", "--html", "page.html"]) == 2
    assert "page.html is the source" in capsys.readouterr().err
    assert run([*REPLAY, "--turns", "turns.json", "--html", "notes.txt"]) == 2
    assert "notes.txt exists and is not an HTML page; name another file" in capsys.readouterr().err
    assert run(["view", "step_000001.jsonl", "--out", "step_000001.jsonl"]) == 2
    assert "step_000001.jsonl is the source" in capsys.readouterr().err


def test_links_to_the_source_are_the_source(folder: Path) -> None:
    (folder / "rows.parquet").write_text("rows")
    (folder / "link.parquet").symlink_to("rows.parquet")
    with pytest.raises(UsageError, match=r"link.parquet is the source"):
        check_outputs([Path("link.parquet")], [Path("rows.parquet")], overwrite=True)


def test_what_loses_nothing_passes(folder: Path) -> None:
    """And the nearest that would lose something does not."""
    records = folder / "records.jsonl"
    records.write_text("{}")
    check_outputs([Path("new.parquet"), None, Path("/dev/null")], [Path("gone"), None])
    check_outputs([Path("records.jsonl")], [Path("others.jsonl")], overwrite=True)
    with pytest.raises(UsageError, match=r"records\.jsonl exists; name another file"):
        check_outputs([records], [Path("gone")])
    with pytest.raises(UsageError, match=r"records\.jsonl is the source"):
        check_outputs([Path("records.jsonl")], [Path("others.jsonl"), records], overwrite=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["data", "export-sft", "nodir", "out.parquet"], "nodir: no such file or folder"),
        (["data", "filter", "rows.parquet", "out.parquet", "--records", "nodir"], "nodir: no such file or folder"),
        (
            ["data", "export-sft", ".", "out.parquet"],
            ". holds no recorded rollouts (step_*.jsonl)",
        ),
        (["data", "logic", "nodir", "out.jsonl", *ENDPOINT], "nodir: no such file or folder"),
        (["data", "generate", "nodir", "out.jsonl", "--reflect", *ENDPOINT], "nodir: no such file or folder"),
        ([*EVAL[:-3], "nofile", *ENDPOINT, "--out", "o"], "cannot read rows from nofile: no such file"),
        ([*EVAL[:-3], "text", *ENDPOINT, "--out", "o"], "cannot read rows from text: not a parquet file"),
        ([*EVAL[:-3], ".", *ENDPOINT, "--out", "o"], "cannot read rows from .: it is a folder; name a parquet file"),
        (["data", "split", "text", "a.parquet", "b.parquet"], "cannot read rows from text: not a parquet file"),
    ],
)
def test_sources_that_are_none(command: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "text").write_text(json.dumps({"question": "What?"}))
    assert run(command) == 2
    error = capsys.readouterr().err
    assert error.startswith("vvt: ") and error.count("\n") == 1
    assert told in error
