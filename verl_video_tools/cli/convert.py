"""`vvt data convert`: rows from a user's table or from published data, and rows for verl's own tool loop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.names import names_of
from verl_video_tools.cli.options import command, config_from
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from verl_video_tools.data.convert import Conversion

_TABLE = "table"
_SKIPPED_SHOWN = 20
_WIDTH = 140
"""Of a table's preview where standard output is no terminal."""


@command
class Convert:
    """Write rows from a table or from published data. With --for, write rows for verl's own tool loop from ours."""

    source: Annotated[
        Path, typer.Argument(help="--from: your table or published annotations, file or folder. --for: our rows.")
    ]
    target: Annotated[Path, typer.Argument(help="Parquet file to write.")]
    source_format: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="Format of the source: table (your own), or one of `vvt list formats`. Writes our rows.",
            autocompletion=names_of("formats"),
        ),
    ] = None
    loop: Annotated[
        Literal["tool_agent"] | None, typer.Option("--for", help="Agent loop to write rows for, from ours.")
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            help="--from: agent_name of the rows. --for: method whose first frames and tools they get, "
            "framethinker (default), longvt or videobrain.",
            autocompletion=names_of("methods"),
        ),
    ] = None
    videos: Annotated[
        Path | None, typer.Option(help="--from: folder of the videos; default: for a table, its folder.")
    ] = None
    column_map: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=COLUMN,...",
            help="--from table: columns instead of the guessed ones, such as question=Q,options=a+b+c; repeatable.",
        ),
    ] = None
    yes: Annotated[
        bool, typer.Option("--yes", help="--from table: write without asking; needed without a terminal.")
    ] = False
    overwrite: Overwrite = False
    subtitles: Annotated[
        Path | None, typer.Option(help="--from: folder of subtitles, to be shown with the questions.")
    ] = None
    subtitle_frames: Annotated[
        int | None,
        typer.Option(min=1, help="--from: only subtitles shown at this number of evenly spaced moments."),
    ] = None
    turns: Annotated[
        bool,
        typer.Option("--turns", help="--from: rows for fine-tuning on the published reasoning; needs --method."),
    ] = False
    questions: Annotated[
        Path | None,
        typer.Option(
            metavar="ROWS.parquet",
            help="--turns: rows of the same questions, for dialogues without video, truth or segment.",
        ),
    ] = None
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="RECORDS.jsonl",
            help="--turns: execute every dialogue, skip those that do not replay, write the others' records here.",
        ),
    ] = None
    split: Annotated[str | None, typer.Option(help="--from: name of the split; default: the format's.")] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="--for: override a field of the method's config; repeatable."
        ),
    ] = None

    def run(self) -> None:
        if (self.source_format is None) == (self.loop is None):
            raise UsageError(
                "give either --from FORMAT, to make our rows (--from table for a table of your own), or --for "
                "tool_agent, to convert them"
            )
        for_rows = {
            "--videos": self.videos,
            "--subtitles": self.subtitles,
            "--subtitle-frames": self.subtitle_frames,
            "--turns": self.turns,
            "--questions": self.questions,
            "--replay": self.replay,
            "--split": self.split,
            "--map": self.column_map,
            "--yes": self.yes,
        }
        for_loop = {"--set": self.settings}
        for name, value in (for_loop if self.source_format is not None else for_rows).items():
            if value:
                raise UsageError(f"{name} is no option of {'--from' if self.source_format is not None else '--for'}")

        for name, value in {"--map": self.column_map, "--yes": self.yes}.items():
            if value and self.source_format != _TABLE:
                raise UsageError(f"{name} is an option of --from table")
        check_outputs(
            rows=(self.target,),
            texts=(self.replay,),
            sources=(self.source, self.questions),
            overwrite=self.overwrite,
        )
        if self.source_format == _TABLE:
            conversion = self._convert_table()
        elif self.source_format is not None:
            conversion = self._convert_published(self.source_format)
        else:
            conversion = self._convert_for_loop()
        for reason in conversion.skipped[:_SKIPPED_SHOWN]:
            typer.echo(f"skipped {reason}", err=True)
        if (num_more := len(conversion.skipped) - _SKIPPED_SHOWN) > 0:
            typer.echo(f"skipped {num_more} more", err=True)
        typer.echo(f"{self.target}: {conversion.num_written} rows, {len(conversion.skipped)} skipped")

    def _convert_table(self) -> Conversion:
        """Show what the table is taken for, and write its rows once the user agrees.

        Raises:
            UsageError: the table cannot be read, no column is found for a needed field, no row is good, or the user
                does not agree or cannot be asked.
        """
        from rich.console import Console

        from verl_video_tools.data.convert import convert_annotations
        from verl_video_tools.data.formats import BenchmarkFiles
        from verl_video_tools.data.table.columns import find_columns
        from verl_video_tools.data.table.files import open_table
        from verl_video_tools.data.table.reader import Table, show

        of_published = {
            "--turns": self.turns,
            "--questions": self.questions,
            "--replay": self.replay,
            "--subtitles": self.subtitles,
            "--subtitle-frames": self.subtitle_frames,
        }
        for name, value in of_published.items():
            if value:
                raise UsageError(f"{name} is no option of --from table")
        if self.videos is not None and not self.videos.is_dir():
            raise UsageError(f"{self.videos}: no such folder")
        table = open_table(self.source, self.split)
        reader = Table(table, find_columns(table, self.column_map or []), self.videos)
        console = Console(markup=False, highlight=False, emoji=False)
        if not console.is_terminal:
            console.width = _WIDTH
        if show(reader, console) and not self.yes:
            _ask(self.target)
        files = BenchmarkFiles(annotations=self.source, videos=self.videos)
        return convert_annotations(reader, files, self.target, method_name=self.method, split=self.split)

    def _convert_published(self, source_format: str) -> Conversion:
        from verl_video_tools.data.convert import convert_annotations
        from verl_video_tools.data.formats import BenchmarkFiles

        if self.videos is None and self.questions is None:
            raise UsageError("--from needs the folder of the videos: --videos DIR")
        files = config_from(BenchmarkFiles, self, annotations=self.source)
        return convert_annotations(
            source_format,
            files,
            self.target,
            method_name=self.method,
            split=self.split,
            taught=self.turns,
            records=self.replay,
        )

    def _convert_for_loop(self) -> Conversion:
        from verl_video_tools.data.stock_rows import convert_parquet

        return convert_parquet(
            self.source,
            self.target,
            method_name=self.method or "framethinker",
            settings=read_assignments(self.settings or []),
        )


def _ask(target: Path) -> None:
    """Raises UsageError if the answer is not yes, or there is nobody to ask."""
    if not sys.stdin.isatty():
        raise UsageError(
            "nothing was written, as standard input is no terminal to ask at: add --yes if the columns above are "
            "right, or name others with --map FIELD=COLUMN"
        )
    try:
        answer = input(f"Write the rows to {target}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was written; name other columns with --map FIELD=COLUMN")
