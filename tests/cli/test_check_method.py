"""`vvt check-method`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verl_video_tools import methods
from verl_video_tools.cli.main import run
from verl_video_tools.synthetic import base_model_dir
from verl_video_tools.testing.run import PROPERTIES


@pytest.mark.slow
def test_a_line_for_each_property(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-method", "direct"]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first == "direct:" and len(lines) == len(PROPERTIES)
    assert "  pass            grammar/parse_accepts_any_text" in lines
    assert "  not applicable  tools/plans_open_no_video: the method has no tools" in lines
    assert last.startswith("direct: ") and " 0 fail, " in last


def test_a_fault_is_told_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-method", "tests.testing.test_properties:Mute"]) == 1
    out = capsys.readouterr().out
    assert "  fail            grammar/example_turns_work: no example turn has an answer" in out
    count = "more properties are not checked, because example_turns_work does not hold"
    assert out.count("does not hold") == out.count(count) == 1, "one line for one cause"


def test_turns_and_settings_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "turns.json").write_text(json.dumps(["so:: B"]))
    arguments = ["check-method", "tests.testing.test_properties:Mute", "--turns", str(tmp_path / "turns.json")]
    assert run([*arguments, "--set", "initial_frames=4"]) == 0
    assert " 0 fail, " in capsys.readouterr().out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-method", "tests.testing.test_properties:Mute", "--json"]) == 1
    ((name, findings),) = json.loads(capsys.readouterr().out).items()
    assert name == "tests.testing.test_properties:Mute"
    assert [finding["property"] for finding in findings] == list(PROPERTIES)
    assert {finding["status"] for finding in findings} == {"pass", "fail", "not applicable"}


@pytest.mark.slow
def test_all_that_are_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"direct": methods.REGISTERED["direct"], "mute": "tests.testing.test_properties:Mute"}
    monkeypatch.setattr(methods, "REGISTERED", known)
    assert run(["check-method", "--all"]) == 1
    lines = capsys.readouterr().out.splitlines()
    told = [line for line in lines if not line.startswith("  ")]
    assert [line.partition(":")[0] for line in told] == ["direct", "direct", "mute", "mute"]
    assert " 0 fail, " in told[1] and " 1 fail, " in told[3]


@pytest.mark.slow
def test_tokens_may_be_counted_by_a_models_processor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-method", "direct", "--processor", str(base_model_dir()), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["direct"]
    assert run(["check-method", "direct", "--processor", "no_such_folder"]) == 2
    assert "model 'no_such_folder' is no folder here" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give either the name of a method or --all"),
        (["direct", "--all"], "give either the name of a method or --all"),
        (["--all", "--set", "max_turns=1"], "--turns and --set are for one method"),
        (["no_such_method"], "there is no method 'no_such_method'; choose one of: framethinker"),
        (["direct", "--set", "frames=1"], "Direct has no field 'frames'"),
        (["direct", "--turns", "no_such_file.json"], "--turns no_such_file.json: No such file"),
    ],
)
def test_bad_usage(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-method", *arguments]) == 2
    assert told in capsys.readouterr().err
