"""The options of `vvt`'s subcommands, where the modules named in the package's docstring do the work.

Exit codes: 0 done, 1 the work failed or the doctor found something, 2 bad usage. Bad usage, ours or the option
parser's, is one line on standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools import __version__
from verl_video_tools.cli.asking import Retrieval, Settings
from verl_video_tools.cli.budget import budget_command
from verl_video_tools.cli.classify import classify_command
from verl_video_tools.cli.convert import convert_command
from verl_video_tools.cli.data import app as data_app
from verl_video_tools.cli.evaluate import eval_command, eval_table_command
from verl_video_tools.cli.generate import generate_command, reflect_command
from verl_video_tools.cli.haystack import haystack_command
from verl_video_tools.cli.logic import logic_command
from verl_video_tools.cli.mcp import mcp_command
from verl_video_tools.cli.probe import probe_command
from verl_video_tools.cli.report import report_command
from verl_video_tools.cli.rows import decontaminate_command, split_command, stats_command
from verl_video_tools.cli.validate import validate_command
from verl_video_tools.cli.view import view_command
from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.synthetic import Family

app = typer.Typer(
    name="vvt",
    help="Video tools for stock verl. `vvt COMMAND --help` explains a command.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data_app, name="data", no_args_is_help=False)  # its help would not be one line
data_app.command("classify")(classify_command)
data_app.command("convert")(convert_command)
data_app.command("decontaminate")(decontaminate_command)
data_app.command("generate")(generate_command)
data_app.command("haystack")(haystack_command)
data_app.command("logic")(logic_command)
data_app.command("probe")(probe_command)
data_app.command("reflect")(reflect_command)
app.command("budget")(budget_command)
app.command("mcp")(mcp_command)
app.command("report")(report_command)
data_app.command("split")(split_command)
data_app.command("stats")(stats_command)
data_app.command("validate")(validate_command)
app.command("eval")(eval_command)
app.command("eval-table")(eval_table_command)
app.command("view")(view_command)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line.

    Args:
        arguments: what follows `vvt` on the command line.

    Returns:
        The exit code.
    """
    try:
        result = app(args=list(arguments), prog_name="vvt", standalone_mode=False)
    except typer.TyperException as error:
        return _complain(error.format_message(), error.exit_code)
    except UsageError as error:
        return _complain(str(error), exit_code=2)
    except VideoToolsError as error:
        return _complain(f"{type(error).__name__}: {error}", exit_code=1)
    return result if isinstance(result, int) else 0


def _complain(message: str, exit_code: int) -> int:
    print("vvt: " + " ".join(message.split()), file=sys.stderr)
    return exit_code


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the subcommand."""


@app.command("doctor")
def _doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
    judge_base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Also check the judge at this endpoint; default: VVT_JUDGE_BASE_URL."),
    ] = None,
    judge_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model to judge with; default: the first that is served.")
    ] = None,
) -> int:
    """Tell whether this installation can train. Exits with 1, and says the mend, where anything needed is amiss."""
    from verl_video_tools.cli import doctor

    return doctor.run(as_json=as_json, judge_base_url=judge_base_url, judge_model=judge_model)


@app.command("demo")
def _demo(
    out: Annotated[Path, typer.Option(help="Folder for videos, rows and base model; made if missing.")],
    train_videos: Annotated[int, typer.Option(min=1, help="Videos of the training split.")] = 96,
    test_videos: Annotated[
        int | None, typer.Option(min=1, help="Videos of the test split; default 24, with --needle 134.")
    ] = None,
    questions_per_video: Annotated[int, typer.Option(min=1, help="Questions asked about each video.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of videos and questions.")] = 0,
    agent_name: Annotated[
        list[str] | None, typer.Option(help="Method that the rows select; several share them. Default: framethinker.")
    ] = None,
    open_ended: Annotated[
        bool, typer.Option("--open-ended", help="Ask in seconds and without options; training then needs a judge.")
    ] = False,
    needle: Annotated[
        bool, typer.Option("--needle", help="Videos of 1 to 10 minutes, decided by events that the first look misses.")
    ] = False,
    family: Annotated[Family, typer.Option(help="Architecture of the base model.")] = "qwen2_5_vl",
) -> None:
    """Make synthetic videos, rows and a tiny base model. The recipes train on them where there is no GPU."""
    from verl_video_tools.cli import demo

    demo.run(
        out=out,
        train_videos=train_videos,
        test_videos=test_videos or (134 if needle else 24),
        questions_per_video=questions_per_video,
        seed=seed,
        agent_names=agent_name or ["framethinker"],
        open_ended=open_ended,
        needle=needle,
        family=family,
    )


@app.command("path")
def _path(name: Annotated[str, typer.Argument(help="agent-loops, tools, hermes-template or longvt-template.")]) -> None:
    """Print the path of a packaged configuration file. For use in a verl command line."""
    from verl_video_tools.verl_plugin.config import config_path

    print(config_path(name))


@app.command("replay")
def _replay(
    method: Annotated[str, typer.Option(help="Method whose loop, tools and reward run, such as framethinker.")],
    video: Annotated[str, typer.Option(help="Video file.")],
    question: Annotated[str, typer.Option(help="Question as the row would carry it.")],
    answer: Annotated[str, typer.Option(help="Ground truth.")],
    turns: Annotated[Path, typer.Option(help="JSON file: list of the assistant's texts, in order.")],
    extra: Annotated[str, typer.Option(metavar="JSON", help="Object merged into the row's extra_info.")] = "{}",
    settings: Settings = None,
    processor: Annotated[
        str | None, typer.Option(help="Folder of a model's processor; only with it token budgets apply.")
    ] = None,
    judge_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="OpenAI-compatible endpoint for questions that need a judge.")
    ] = None,
    rung: Annotated[
        int | None,
        typer.Option(min=1, help="FrameMind: rung of its ladder, from 1; as --set rung=INT."),
    ] = None,
    retrieval: Retrieval = None,
    html: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Also draw the rollout, as `vvt view` does, in this HTML file.")
    ] = None,
) -> None:
    """Run a method on one video under a scripted policy. Loop, tools and reward are real; prints one JSON object."""
    from verl_video_tools.cli import replay

    replay.run(
        method=method,
        video=video,
        question=question,
        answer=answer,
        turns_file=turns,
        extra_json=extra,
        assignments=settings or [],
        processor=processor,
        judge_base_url=judge_base_url,
        rung=rung,
        retrieval=retrieval or [],
        html=html,
    )
