"""`vvt`: one command, one subcommand per chore.

    main.py      options of the subcommands; those of `vvt data` stand in data/cli.py and data/*_command.py,
                 those of `vvt view` in trace/view_command.py, of `vvt mcp` in mcp_server/command.py
    asking.py    options that several of them share: asking a model behind an endpoint
    doctor.py    table, JSON and exit code of `vvt doctor`; probes.py and tested_versions.py are what it looks at
    demo.py      `vvt demo`
    replay.py    `vvt replay`
    output.py    keeps what libraries print out of a command's own output

Each module imports what it needs when it runs, so that `vvt doctor` also works where packages are missing.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def console_main() -> NoReturn:
    """Console script `vvt`: runs the command line of this process and exits with its code."""
    try:
        from verl_video_tools.cli.main import run
    except ModuleNotFoundError as error:
        sys.exit(_run_without_typer(error))
    sys.exit(run(sys.argv[1:]))


def _run_without_typer(error: ModuleNotFoundError) -> int:
    """Typer reads the options, so without it only the doctor, which names the mend, can be of use."""
    from verl_video_tools.cli import doctor

    if sys.argv[1:2] == ["doctor"]:
        return doctor.run(as_json="--json" in sys.argv[2:])
    print(
        f"vvt: the module {error.name!r} is not installed; 'vvt doctor' prints the command that mends it",
        file=sys.stderr,
    )
    return 1
