"""`vvt`: one command, one subcommand per chore.

    main.py           the commands by their names, and how one is run
    options.py        what several of them share: options, options as a config, files to write, progress
    names.py          what can be named, such as methods and benchmarks
    runs.py, rows.py, rollouts.py, evaluation.py, records.py, package.py    the commands by topic

A command is a dataclass whose fields are its options, and whose method `run` does it.
A command imports what it needs when it runs, so that `vvt doctor` also works where packages are missing.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def console_main() -> NoReturn:
    """Console script `vvt`: runs the command line of this process and exits with its code."""
    _open_closed_streams()
    try:
        from verl_video_tools.cli.main import run
    except ModuleNotFoundError as error:
        sys.exit(_run_without_typer(error))
    sys.exit(run(sys.argv[1:]))


def _open_closed_streams() -> None:
    """A stream that the shell has closed (`vvt ... >&-`) drops what is written to it. Otherwise the next file that is
    opened would be that stream for libraries and child processes."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))


def _run_without_typer(error: ModuleNotFoundError) -> int:
    """Typer reads the options, so without it only the doctor, which names the fix, can be of use."""
    if sys.argv[1:2] == ["doctor"]:
        from verl_video_tools.launch.checks.installation import installation_report

        return installation_report().show(as_json="--json" in sys.argv[2:])
    print(
        f"vvt: the module {error.name!r} is not installed; 'vvt doctor' prints the command that fixes it",
        file=sys.stderr,
    )
    return 1
