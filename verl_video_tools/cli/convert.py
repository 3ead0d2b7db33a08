"""`vvt data convert`: reads the options and runs `convert_annotations` or, for verl's own loop, `convert_parquet`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError


def convert_command(
    source: Annotated[Path, typer.Argument(help="--from: published annotations, file or folder. --for: our rows.")],
    target: Annotated[Path, typer.Argument(help="Parquet file to write.")],
    source_format: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help="Write our rows; FORMAT is that of the source (docs/data.md)."),
    ] = None,
    loop: Annotated[
        Literal["tool_agent"] | None, typer.Option("--for", help="Write rows for this agent loop, from ours.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="--from: agent_name of the rows; default: none. --for: method whose first look and tools they get, "
            "framethinker (default), longvt or videobrain."
        ),
    ] = None,
    videos: Annotated[Path | None, typer.Option(help="--from: folder of the videos.")] = None,
    subtitles: Annotated[
        Path | None, typer.Option(help="--from: folder of subtitles, to be told with the questions.")
    ] = None,
    subtitle_frames: Annotated[
        int | None,
        typer.Option(min=1, help="--from: only subtitles shown at so many evenly spaced moments."),
    ] = None,
    turns: Annotated[
        bool,
        typer.Option("--turns", help="--from: rows for fine-tuning on the published reasoning; takes --method."),
    ] = False,
    split: Annotated[str | None, typer.Option(help="--from: name of the split; default: the format's.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="--for: override a field of the method's config; repeatable."
        ),
    ] = None,
    system_prompt_file: Annotated[
        Path | None, typer.Option(help="--for: text that replaces our system prompt.")
    ] = None,
    skip_unreadable: Annotated[
        bool,
        typer.Option("--skip-unreadable", help="--for: leave out rows whose video cannot be read."),
    ] = False,
) -> None:
    """Write our rows from published data (--from), or rows for verl's own tool loop from ours (--for)."""
    if (source_format is None) == (loop is None):
        raise UsageError("give either --from FORMAT, to make our rows, or --for tool_agent, to convert them")
    for_rows = {
        "--videos": videos,
        "--subtitles": subtitles,
        "--subtitle-frames": subtitle_frames,
        "--turns": turns,
        "--split": split,
    }
    for_loop = {"--set": settings, "--system-prompt-file": system_prompt_file, "--skip-unreadable": skip_unreadable}
    for name, value in (for_loop if source_format is not None else for_rows).items():
        if value:
            raise UsageError(f"{name} is no option of {'--from' if source_format is not None else '--for'}")

    if source_format is not None:
        from verl_video_tools.data.convert import convert_annotations
        from verl_video_tools.data.formats import BenchmarkFiles

        if videos is None:
            raise UsageError("--from needs the folder of the videos: --videos DIR")
        files = BenchmarkFiles(annotations=source, videos=videos, subtitles=subtitles, subtitle_frames=subtitle_frames)
        conversion = convert_annotations(source_format, files, target, method_name=method, split=split, taught=turns)
    else:
        from verl_video_tools.data.stock_rows import convert_parquet

        conversion = convert_parquet(
            source,
            target,
            method_name=method or "framethinker",
            settings=read_assignments(settings or []),
            system_prompt=None if system_prompt_file is None else _read_prompt(system_prompt_file),
            skip_unreadable=skip_unreadable,
        )
    for reason in conversion.skipped:
        typer.echo(f"skipped {reason}", err=True)
    with_subtitles = "" if subtitles is None else f" ({conversion.num_with_subtitles} with subtitles)"
    typer.echo(f"{target}: {conversion.num_written} rows{with_subtitles}, {len(conversion.skipped)} skipped")


def _read_prompt(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--system-prompt-file {path}: {error}") from error
