"""`vvt mcp`: what is refused before anything is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_video_tools.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--videos"),
        (["--videos", "{folder}/absent"], "there is no folder"),
        (["--videos", "{folder}", "--max-frames", "0"], "--max-frames"),
        (["--videos", "{folder}", "--retrieval", "encoder=x"], "no field 'encoder'"),
        (["--videos", "{folder}", "--port", "0"], "--port"),
    ],
)
def test_bad_usage(arguments: list[str], named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["mcp", *(argument.format(folder=tmp_path) for argument in arguments)]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert named in captured.err and captured.err.count("\n") == 1
