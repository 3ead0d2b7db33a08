"""Commands about rows and their videos: `vvt data convert`, `validate`, `split`, `filter`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from verl_video_tools.cli.names import names_of
from verl_video_tools.cli.options import (
    ExplicitOptions,
    MaxPixels,
    MinPixels,
    Overwrite,
    Rows,
    check_outputs,
    command,
    config_from,
    probe_videos,
)
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError, writing
from verl_video_tools.core.files import write_lines

if TYPE_CHECKING:
    from verl_video_tools.data.convert import Conversion


_TABLE = "table"
_OF_PUBLISHED = ("turns", "questions", "replay", "subtitles")
_OF_TABLE = ("column_map", "first_option", "yes")
_SKIPPED_SHOWN = 20


@command
class Convert(ExplicitOptions):
    """Make rows from a table or from published data. With --for, make rows for verl's own tool loop."""

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
            help="--from: agent_name of the rows. --for: method whose initial frames and tools they get, "
            "framethinker (default), longvt or videobrain.",
            autocompletion=names_of("methods"),
        ),
    ] = None
    videos: Annotated[
        Path | None, typer.Option(help="--from: folder with the videos; default for a table: the folder of the table.")
    ] = None
    column_map: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=COLUMN,...",
            help="--from table: columns of other names than the fields, such as question=Q,options=a+b+c; repeatable.",
        ),
    ] = None
    first_option: Annotated[
        int | None,
        typer.Option(
            min=0, max=1, help="--from table: answers are numbers of options, the first of which has this number."
        ),
    ] = None
    yes: Annotated[
        bool, typer.Option("--yes", help="--from table: write without asking; needed without a terminal.")
    ] = False
    overwrite: Overwrite = False
    subtitles: Annotated[
        Path | None, typer.Option(help="--from: folder with subtitles to show with the questions.")
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
        if self.source_format is None:
            self.refuse(("videos", "split", *_OF_PUBLISHED, *_OF_TABLE), "cannot be used with --for")
        else:
            self.refuse(("settings",), "cannot be used with --from")
            if self.source_format == _TABLE:
                self.refuse(_OF_PUBLISHED, "cannot be used with --from table")
            else:
                self.refuse(_OF_TABLE, "needs --from table")
        check_outputs((self.target, self.replay), (self.source, self.questions), overwrite=self.overwrite)
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
        if self.subtitles is not None:
            typer.echo(f"{conversion.num_with_subtitles} of {conversion.num_written} questions have subtitles")
        typer.echo(f"{self.target}: {conversion.num_written} rows, {len(conversion.skipped)} skipped")

    def _convert_table(self) -> Conversion:
        """Show how the table is read, and write its rows once the user agrees.

        Raises:
            UsageError: the table cannot be read, no column is found for a needed field, no row is good, or the user
                does not agree, or there is no terminal to ask at.
        """
        from verl_video_tools.data.convert import convert_annotations
        from verl_video_tools.data.formats import BenchmarkFiles
        from verl_video_tools.data.table import Table

        if self.videos is not None and not self.videos.is_dir():
            raise UsageError(f"{self.videos}: no such folder")
        reader = Table(
            self.source,
            split=self.split,
            assignments=self.column_map or (),
            videos=self.videos,
            first_option=self.first_option,
            frame_lists=self.target.with_name(f"{self.target.stem}_frames"),
        )
        lines, is_writable = reader.preview()
        print(*lines, sep="\n")
        if is_writable and not self.yes:
            _confirm(self.target)
        files = BenchmarkFiles(annotations=self.source, videos=self.videos)
        conversion = convert_annotations(reader, files, self.target, method_name=self.method, split=self.split)
        reader.write_frame_lists()
        return conversion

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
            with_responses=self.turns,
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


def _confirm(target: Path) -> None:
    """Raises UsageError if the answer is not yes, or standard input is no terminal."""
    if not sys.stdin.isatty():
        raise UsageError(
            "nothing was written, because there is no terminal to ask at: add --yes if the columns above are "
            "right, or name other columns with --map FIELD=COLUMN"
        )
    try:
        answer = input(f"Write the rows to {target}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was written; name other columns with --map FIELD=COLUMN")


@command
class Validate(ExplicitOptions):
    """Check fields, files and truths of rows, without decoding. Exits 1 if any row is bad, or if there are no rows."""

    source: Rows
    out: Annotated[Path | None, typer.Option(help="Parquet file to write, with the good rows.")] = None
    report: Annotated[Path | None, typer.Option(help="File to write, with one JSON object per row.")] = None
    probe: Annotated[bool, typer.Option("--probe", help="Open every video, too.")] = False
    processor: Annotated[
        str | None,
        typer.Option(
            help="Folder of the model whose processor counts the tokens of every prompt. This opens the videos."
        ),
    ] = None
    method: Annotated[str | None, typer.Option(help="Method of rows without agent_name.")] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="[METHOD.]FIELD=VALUE", help="Set a field of the method, as in the run; repeatable."
        ),
    ] = None
    min_pixels: MinPixels = None
    max_pixels: MaxPixels = None
    max_prompt_length: Annotated[
        int | None,
        typer.Option(min=1, help="With --processor: data.max_prompt_length of the run; default: that of the recipe."),
    ] = None
    max_images: Annotated[
        int | None,
        typer.Option(min=1, help="With --processor: images that a rollout may have; default: those of the recipe."),
    ] = None
    overwrite: Overwrite = False

    def run(self) -> int:
        from verl_video_tools.data.rows import RowMethods
        from verl_video_tools.data.validate import PromptCosts, validate_file

        check_outputs((self.out, self.report), (self.source,), overwrite=self.overwrite)
        if self.processor is None:
            of_prompts = ("min_pixels", "max_pixels", "max_prompt_length", "max_images")
            self.refuse(of_prompts, "says what a prompt holds or may hold; it needs --processor")
        methods = RowMethods(self.method, read_assignments(self.settings or []))
        costs = None
        if self.processor is not None:
            from verl_video_tools.verl_plugin.model_tokens import load_model_tokens

            model = load_model_tokens(self.processor, {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels})
            costs = PromptCosts(model, methods, self.max_prompt_length, self.max_images)
        videos = probe_videos(self.source) if self.probe or self.processor is not None else None
        checked = []
        for row in validate_file(self.source, methods=methods, out=self.out, videos=videos, costs=costs):
            checked.append(row)
            for problem in row.problems:
                typer.echo(f"row {row.number}: {problem}", err=True)
        if self.report is not None:
            with writing(self.report, "give another --report"):
                write_lines(self.report, map(asdict, checked))
        num_bad = sum(bool(row.problems) for row in checked)
        print(f"{self.source}: {len(checked)} rows, {num_bad} bad")
        if tokens := sorted(row.cost.tokens for row in checked if row.cost is not None):
            print(f"tokens of prompts: median {tokens[len(tokens) // 2]}, most {tokens[-1]}")
        return int(num_bad > 0)


@command
class Split:
    """Split rows so that no video is in both files."""

    source: Rows
    first: Annotated[
        Path, typer.Argument(metavar="TRAIN.parquet", help="Parquet file to write, with the larger part of the rows.")
    ]
    second: Annotated[
        Path, typer.Argument(metavar="TEST.parquet", help="Parquet file to write, with the rest of the rows.")
    ]
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the rows that the second file gets.")] = 0.1
    seed: Annotated[int, typer.Option(help="Seed for the choice of videos.")] = 0
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.data.subsets import split_by_video
        from verl_video_tools.evaluation.statistics import MIN_VIDEOS

        check_outputs((self.first, self.second), (self.source,), overwrite=self.overwrite)
        split = split_by_video(self.source, self.first, self.second, second_share=self.share, seed=self.seed)
        for path, num_rows, num_videos in zip((self.first, self.second), split.num_rows, split.num_videos, strict=True):
            print(f"{path}: {num_rows} rows on {num_videos} videos")
        if split.num_videos[1] < MIN_VIDEOS:
            print(
                f"with fewer than {MIN_VIDEOS} videos, {self.second} gives accuracies without an interval; take more "
                "videos, or a larger --share"
            )


@command
class Filter:
    """Keep rows of medium difficulty, balanced by video length. Drops questions that all or no rollouts answered."""

    in_parquet: Annotated[Path, typer.Argument(help="Rows for reinforcement learning.")]
    out_parquet: Annotated[Path, typer.Argument(help="File to write.")]
    records: Annotated[
        Path | None, typer.Option(help="Recorded rollouts of these rows: folder of a run, or a .jsonl file.")
    ] = None
    band_seconds: Annotated[
        list[float] | None,
        typer.Option(
            help="Bound in seconds between two bands of video length, such as 180; repeatable, in ascending order."
        ),
    ] = None
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.data.filters import filter_rows, pass_rates_of_records

        check_outputs((self.out_parquet,), (self.in_parquet, self.records), overwrite=self.overwrite)
        if self.records is None and not self.band_seconds:
            raise UsageError("nothing to choose by: give --records, --band-seconds, or both")
        rates = None if self.records is None else pass_rates_of_records(self.records)
        report = filter_rows(self.in_parquet, self.out_parquet, rates, band_seconds=self.band_seconds or ())
        print(f"{self.out_parquet}: {report}")
