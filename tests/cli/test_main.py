"""The command line: exit codes, and one line on standard error for bad usage."""

from __future__ import annotations

import subprocess
import sys

import pytest

from verl_video_tools import __version__
from verl_video_tools.cli.main import run

COMMANDS = ("data", "demo", "doctor", "mcp", "path", "replay", "report", "view")


def test_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capfd.readouterr().out == f"{__version__}\n"


def test_help_lists_every_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capfd.readouterr().out
    assert [command for command in COMMANDS if f"  {command} " in listed] == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    captured = capfd.readouterr()
    assert f"Usage: vvt {command}" in captured.out
    assert captured.err == ""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "Missing command"),
        (["dance"], "dance"),
        (["doctor", "--loud"], "--loud"),
        (["demo"], "--out"),
        (["demo", "--out", "x", "--train-videos", "0"], "--train-videos"),
        (["demo", "--out", "x", "--seed", "one"], "--seed"),
        (["path", "nowhere"], "nowhere"),
        (["data"], "Missing command"),
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
    from verl_video_tools.verl_plugin.config import config_path

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
