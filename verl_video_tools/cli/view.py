"""`vvt view`: its options, and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import check_page
from verl_video_tools.cli.options import command
from verl_video_tools.cli.progress import progress_bars
from verl_video_tools.core.errors import UsageError

_HOST = "127.0.0.1"
TokenText = Callable[[int], str]
"""Text of a token."""


@command
class View:
    """Show recorded rollouts, as one HTML file or live. The file needs no network."""

    records: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run or of its trajectories, or one file of records.")
    ]
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTML file to write; default: rollouts.html in the folder of the run."),
    ] = None
    live: Annotated[
        bool, typer.Option("--live", help="Serve a page that follows the run instead of writing a file.")
    ] = False
    host: Annotated[str, typer.Option(help="With --live: address to listen on.")] = _HOST
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --live: port to listen on; 0: any free one.")] = 0
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
        if self.live and self.out is not None:
            raise UsageError("--live serves a page and writes no file; leave --out out")
        if not self.live and (self.host, self.port) != (_HOST, 0):
            raise UsageError("--host and --port need --live")
        token_text = None if self.tokenizer is None else _token_text(self.tokenizer)
        if self.live:
            self._serve(token_text)
        else:
            self._write(token_text)

    def _serve(self, token_text: TokenText | None) -> None:
        from verl_video_tools.records.live_run import LiveRun
        from verl_video_tools.records.live_server import LiveServer

        if not self.records.exists():
            raise UsageError(f"{self.records}: no such folder or file; a run makes its folder when it starts")
        run = LiveRun(self.records, max_rollouts=self.max_rollouts, pictures=self.thumbnails, token_text=token_text)
        try:
            server = LiveServer(run, str(self.records), self.host, self.port)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {self.host} port {self.port} ({error.strerror or error}); try another --port"
            ) from error
        with server:
            with progress_bars("read") as (advance,):
                run.read(lambda count: advance(count, count))
            print(f"{server.url}\nfollows {self.records} until Ctrl-C", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print()

    def _write(self, token_text: TokenText | None) -> None:
        from verl_video_tools.records.records import record_files, run_folder
        from verl_video_tools.records.view import write_view

        name = self.records.stem if self.records.is_file() else "rollouts"
        out = self.out or run_folder(self.records) / f"{name}.html"
        check_page(out, record_files(self.records))
        with progress_bars("read", *(["thumbnails"] if self.thumbnails else [])) as advance:
            view = write_view(
                self.records,
                out,
                title=str(self.records),
                max_rollouts=self.max_rollouts,
                read=advance[0],
                decoded=advance[1] if self.thumbnails else None,
                token_text=token_text,
            )

        left_out = f", {view.num_left_out} others left out (--max-rollouts)" if view.num_left_out else ""
        megabytes = view.num_bytes / 1e6
        num_images = view.thumbnails.count()
        print(f"{out}: {view.num_rollouts} rollouts{left_out}, {num_images} thumbnails, {megabytes:.1f} MB")
        if view.thumbnails.notes:
            example = next(iter(view.thumbnails.notes.values()))
            print(f"videos without thumbnails: {len(view.thumbnails.notes)}, for example {example}")


def _token_text(folder: Path) -> TokenText:
    if not folder.is_dir():
        raise UsageError(f"--tokenizer {folder}: no such folder")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"--tokenizer {folder}: cannot be loaded ({error})") from error
    return lambda token_id: str(tokenizer.decode([token_id]))
