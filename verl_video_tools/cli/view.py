"""`vvt view`: its options, and what it prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import check_page
from verl_video_tools.cli.options import command
from verl_video_tools.cli.progress import progress_bars
from verl_video_tools.core.errors import UsageError


@command
class View:
    """Show recorded rollouts as one HTML file. It needs no network."""

    records: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run or of its trajectories, or one file of records.")
    ]
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTML file to write; default: rollouts.html in the folder of the run."),
    ] = None
    max_rollouts: Annotated[
        int, typer.Option(min=1, help="Rollouts on the page; of more, groups of the last steps.")
    ] = 500
    thumbnails: Annotated[
        bool, typer.Option("--thumbnails/--no-thumbnails", help="Decode the frames that were shown.")
    ] = True
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the model's tokenizer, to show tokens as text.")
    ] = None

    def run(self) -> None:
        from verl_video_tools.records.records import record_files, run_folder
        from verl_video_tools.records.view import write_view

        name = self.records.stem if self.records.is_file() else "rollouts"
        out = self.out or run_folder(self.records) / f"{name}.html"
        check_page(out, record_files(self.records))
        with progress_bars("thumbnails") as (advance,):
            view = write_view(
                self.records,
                out,
                title=str(self.records),
                max_rollouts=self.max_rollouts,
                decoded=advance if self.thumbnails else None,
                token_text=None if self.tokenizer is None else _token_text(self.tokenizer),
            )

        left_out = f", {view.num_left_out} others left out (--max-rollouts)" if view.num_left_out else ""
        megabytes = view.num_bytes / 1e6
        num_images = view.thumbnails.count()
        print(f"{out}: {view.num_rollouts} rollouts{left_out}, {num_images} thumbnails, {megabytes:.1f} MB")
        if view.thumbnails.notes:
            example = next(iter(view.thumbnails.notes.values()))
            print(f"videos without thumbnails: {len(view.thumbnails.notes)}, for example {example}")


def _token_text(folder: Path) -> Callable[[int], str]:
    if not folder.is_dir():
        raise UsageError(f"--tokenizer {folder}: no such folder")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"--tokenizer {folder}: cannot be loaded ({error})") from error
    return lambda token_id: str(tokenizer.decode([token_id]))
