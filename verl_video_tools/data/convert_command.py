"""`vvt data convert`: reads the options and runs `convert_parquet`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from verl_video_tools.cli.replay import read_assignments
from verl_video_tools.errors import UsageError


def convert_command(
    source: Annotated[Path, typer.Argument(help="Parquet file of our rows.")],
    target: Annotated[Path, typer.Argument(help="Parquet file to write.")],
    loop: Annotated[Literal["tool_agent"], typer.Option("--for", help="Agent loop that will read the rows.")],
    method: Annotated[
        str, typer.Option(help="Method whose first look and tools the rows get: framethinker, longvt or videobrain.")
    ] = "framethinker",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Override a field of the method's config; repeatable.",
        ),
    ] = None,
    system_prompt_file: Annotated[Path | None, typer.Option(help="Text that replaces our system prompt.")] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out rows whose video cannot be read.")
    ] = False,
) -> None:
    """Write rows for verl's own tool loop. The frames of the first look are inside."""
    from verl_video_tools.data.stock_rows import convert_parquet  # opens videos; the option parser need not wait for it

    system_prompt = None
    if system_prompt_file is not None:
        try:
            system_prompt = system_prompt_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--system-prompt-file {system_prompt_file}: {error}") from error
    conversion = convert_parquet(
        source,
        target,
        method_name=method,
        settings=read_assignments(settings or []),
        system_prompt=system_prompt,
        skip_unreadable=skip_unreadable,
    )
    for reason in conversion.skipped:
        typer.echo(f"skipped {reason}", err=True)
    typer.echo(f"{target}: {conversion.num_written} rows, {len(conversion.skipped)} skipped")
