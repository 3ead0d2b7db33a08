"""The commands of `vvt` by their names, and how one is run.

Exit codes: 0 done, 1 the work failed or the doctor found something, 2 bad usage, 3 a replayed rollout was lost. Bad
usage, ours or the option parser's, is one line on standard error.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand

from verl_video_tools import __version__
from verl_video_tools.cli.evaluation import Chat, EvalTable, Evaluate
from verl_video_tools.cli.package import CheckMethod, ConfigPath, Demo, ListNames
from verl_video_tools.cli.records import Replay, Report, View
from verl_video_tools.cli.rollouts import Classify, ExportSFT, Generate, Logic
from verl_video_tools.cli.rows import Convert, Filter, Split, Validate
from verl_video_tools.cli.runs import Budget, Doctor, Estimate, Train
from verl_video_tools.core.errors import UsageError, VideoToolsError


class DataclassCommand(TyperCommand):
    """Calls `run` of the dataclass that holds the options, and lists its own options before those that it inherits."""

    def invoke(self, context: Any) -> Any:
        command = super().invoke(context)
        command.explicit_options = {
            parameter.name: parameter.opts[0]
            for parameter in self.params
            if context.get_parameter_source(parameter.name).name == "COMMANDLINE"
        }
        return command.run()

    def get_params(self, context: Any) -> list[Any]:
        own_options = getattr(self.callback, "__annotations__", {})
        return sorted(super().get_params(context), key=lambda parameter: parameter.name not in own_options)


app = typer.Typer(
    name="vvt",
    help="Video tools for stock verl. `vvt COMMAND --help` explains a command.",
    context_settings={"help_option_names": ["-h", "--help"]},  # inherited by every command
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Make, check and convert rows.", invoke_without_command=True)
app.add_typer(data_app, name="data")
COMMANDS: dict[str, type] = {
    "doctor": Doctor,
    "train": Train,
    "demo": Demo,
    "list": ListNames,
    "path": ConfigPath,
    "estimate": Estimate,
    "budget": Budget,
    "view": View,
    "report": Report,
    "eval": Evaluate,
    "eval-table": EvalTable,
    "replay": Replay,
    "chat": Chat,
    "check-method": CheckMethod,
}
DATA_COMMANDS: dict[str, type] = {
    "convert": Convert,
    "validate": Validate,
    "split": Split,
    "filter": Filter,
    "generate": Generate,
    "logic": Logic,
    "classify": Classify,
    "export-sft": ExportSFT,
}
for group, commands in ((app, COMMANDS), (data_app, DATA_COMMANDS)):
    for name, command in commands.items():
        group.command(name, cls=DataclassCommand)(command)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line.

    Args:
        arguments: what follows `vvt` on the command line.

    Returns:
        The exit code.
    """
    try:
        exit_code = _command()(args=list(arguments), prog_name="vvt", standalone_mode=False) or 0
        print(end="", flush=True)  # here, a full disk under the output is told as any other
        return exit_code
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return _complain(f"no space is left on the device of {error.filename or 'the output'}", exit_code=2)
    except typer.TyperException as error:
        return _complain(error.format_message(), error.exit_code)
    except UsageError as error:
        return _complain(str(error), exit_code=2)
    except VideoToolsError as error:
        # The public class of the error: a module may derive private ones from it.
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == VideoToolsError.__module__)
        return _complain(f"{kind.__name__}: {error}", exit_code=1)


@cache
def _command() -> Any:
    """The commands and their options as the parser knows them; `app` itself would gather them anew for each `run`."""
    return typer.main.get_command(app)


def _complain(message: str, exit_code: int) -> int:
    print("vvt: " + " ".join(message.split()), file=sys.stderr)
    return exit_code


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(__version__)
        raise typer.Exit()


def _help_without_command(context: typer.Context) -> None:
    """`vvt` and `vvt data` alone print their help and exit with 0."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@data_app.callback()
def _data(context: typer.Context) -> None:
    _help_without_command(context)


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the subcommand."""
    _help_without_command(context)
