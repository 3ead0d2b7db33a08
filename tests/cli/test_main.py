"""The command line: exit codes, and one line on standard error for bad usage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.videos.files import MakeVideo
from verl_video_tools import __version__
from verl_video_tools.cli.main import COMMANDS, DATA_COMMANDS, run

ALL = ("data", *COMMANDS)


def test_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capfd.readouterr().out == f"{__version__}\n"


def test_help_lists_every_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capfd.readouterr().out
    assert [command for command in ALL if f"  {command} " in listed] == list(ALL)


def test_help_of_a_command(capfd: pytest.CaptureFixture[str]) -> None:
    for command in ([], *([name] for name in ALL), *(["data", name] for name in DATA_COMMANDS)):
        assert run([*command, "--help"]) == 0
        captured = capfd.readouterr()
        assert " ".join(["Usage: vvt", *command]) in captured.out
        assert captured.err == "", command
        assert run([*command, "-h"]) == 0
        assert capfd.readouterr() == captured, command


@pytest.mark.parametrize("group", [[], ["data"]])
def test_a_group_alone_prints_its_help(group: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(group) == 0
    alone = capfd.readouterr()
    assert run([*group, "--help"]) == 0
    assert capfd.readouterr() == alone
    assert "..." not in alone.out.partition("Commands:")[2], "a first sentence is too long for its line"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["dance"], "dance"),
        (["doctor", "--loud"], "--loud"),
        (["demo"], "--out"),
        (["demo", "--out", "x", "--train-videos", "0"], "--train-videos"),
        (["demo", "--out", "x", "--seed", "one"], "--seed"),
        (["path", "nowhere"], "nowhere"),
        (["data", "dance"], "dance"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("vvt: ")
    assert captured.err.count("\n") == 1
    assert named in captured.err


def test_path_prints_an_existing_file(capfd: pytest.CaptureFixture[str]) -> None:
    from verl_video_tools.config import config_path

    assert run(["path", "agent-loops"]) == 0
    printed = capfd.readouterr().out.strip()
    assert printed == str(config_path("agent-loops"))
    assert config_path("agent-loops").is_file()


def test_module_is_the_command_and_stays_light() -> None:
    code = (
        "import sys; sys.argv = ['vvt', '--version']\n"
        "from verl_video_tools.cli import console_main\n"
        "try: console_main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "heavy = {'torch', 'av', 'numpy', 'transformers', 'ray', 'vllm', 'verl'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)
    done = subprocess.run(
        [sys.executable, "-m", "verl_video_tools.cli", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"{__version__}\n"


@pytest.mark.slow
def test_bash_completes_commands_options_and_names(tmp_path: Path) -> None:
    vvt = tmp_path / "vvt"
    vvt.write_text(f'#!/bin/sh\nexec {sys.executable} -m verl_video_tools.cli "$@"\n')
    vvt.chmod(0o755)
    typed = {"vvt data sp": "split", "vvt replay --vid": "--video", "vvt list formats video-h": "video-holmes"}
    script = ['eval "$(vvt --show-completion)"']
    for line in typed:
        words = line.split()
        script.append(f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _vvt_completion vvt; echo ${{COMPREPLY[@]}}")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    bash = ["bash", "-c", "\n".join(script)]
    done = subprocess.run(bash, env=environment, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.splitlines() == list(typed.values())


@pytest.mark.parametrize("arguments", [["list", "methods"], ["--version"]])
def test_a_full_disk_under_the_output_is_told(arguments: list[str]) -> None:
    """Little output is only written when the command ends."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "verl_video_tools.cli", *arguments]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (2, "vvt: no space is left on the device of the output\n")


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_drops_what_is_written_to_it(closed: str, tmp_path: Path, make_video: MakeVideo) -> None:
    (tmp_path / "turns.json").write_text('["<think>a</think><action>output answer: B</action>"]')
    words = (
        f"replay --method framethinker --video {make_video(num_frames=9)} --question q --answer B --turns turns.json"
    )
    command = f"{sys.executable} -m verl_video_tools.cli {words} {closed}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("{") is not closed.startswith(">")
