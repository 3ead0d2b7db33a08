"""`vvt data convert`: reads the options and runs `convert_annotations` or, for verl's own loop, `convert_parquet`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from verl_video_tools.cli.options import command, config_from
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError


@command
class Convert:
    """Write our rows from published data (--from), or rows for verl's own tool loop from ours (--for)."""

    source: Annotated[Path, typer.Argument(help="--from: published annotations, file or folder. --for: our rows.")]
    target: Annotated[Path, typer.Argument(help="Parquet file to write.")]
    source_format: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help="Write our rows; FORMAT is that of the source (docs/data.md)."),
    ] = None
    loop: Annotated[
        Literal["tool_agent"] | None, typer.Option("--for", help="Write rows for this agent loop, from ours.")
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            help="--from: agent_name of the rows; default: none. --for: method whose first look and tools they get, "
            "framethinker (default), longvt or videobrain."
        ),
    ] = None
    videos: Annotated[Path | None, typer.Option(help="--from: folder of the videos.")] = None
    subtitles: Annotated[
        Path | None, typer.Option(help="--from: folder of subtitles, to be told with the questions.")
    ] = None
    subtitle_frames: Annotated[
        int | None,
        typer.Option(min=1, help="--from: only subtitles shown at so many evenly spaced moments."),
    ] = None
    turns: Annotated[
        bool,
        typer.Option("--turns", help="--from: rows for fine-tuning on the published reasoning; takes --method."),
    ] = False
    split: Annotated[str | None, typer.Option(help="--from: name of the split; default: the format's.")] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="--for: override a field of the method's config; repeatable."
        ),
    ] = None
    system_prompt_file: Annotated[Path | None, typer.Option(help="--for: text that replaces our system prompt.")] = None
    skip_unreadable: Annotated[
        bool,
        typer.Option("--skip-unreadable", help="--for: leave out rows whose video cannot be read."),
    ] = False

    def run(self) -> None:
        if (self.source_format is None) == (self.loop is None):
            raise UsageError("give either --from FORMAT, to make our rows, or --for tool_agent, to convert them")
        for_rows = {
            "--videos": self.videos,
            "--subtitles": self.subtitles,
            "--subtitle-frames": self.subtitle_frames,
            "--turns": self.turns,
            "--split": self.split,
        }
        for_loop = {
            "--set": self.settings,
            "--system-prompt-file": self.system_prompt_file,
            "--skip-unreadable": self.skip_unreadable,
        }
        for name, value in (for_loop if self.source_format is not None else for_rows).items():
            if value:
                raise UsageError(f"{name} is no option of {'--from' if self.source_format is not None else '--for'}")

        if self.source_format is not None:
            from verl_video_tools.data.convert import convert_annotations
            from verl_video_tools.data.formats import BenchmarkFiles

            if self.videos is None:
                raise UsageError("--from needs the folder of the videos: --videos DIR")
            files = config_from(BenchmarkFiles, self, annotations=self.source)
            conversion = convert_annotations(
                self.source_format, files, self.target, method_name=self.method, split=self.split, taught=self.turns
            )
        else:
            from verl_video_tools.data.stock_rows import convert_parquet

            conversion = convert_parquet(
                self.source,
                self.target,
                method_name=self.method or "framethinker",
                settings=read_assignments(self.settings or []),
                system_prompt=None if self.system_prompt_file is None else _read_prompt(self.system_prompt_file),
                skip_unreadable=self.skip_unreadable,
            )
        for reason in conversion.skipped:
            typer.echo(f"skipped {reason}", err=True)
        with_subtitles = "" if self.subtitles is None else f" ({conversion.num_with_subtitles} with subtitles)"
        typer.echo(f"{self.target}: {conversion.num_written} rows{with_subtitles}, {len(conversion.skipped)} skipped")


def _read_prompt(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--system-prompt-file {path}: {error}") from error
