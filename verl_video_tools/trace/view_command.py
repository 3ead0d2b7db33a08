"""`vvt view`: reads the options and the records, decodes thumbnails, writes the page."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_video_tools.data.progress import progress_bars
from verl_video_tools.errors import UsageError


def view_command(
    records: Annotated[Path, typer.Argument(help="Folder of a run's trajectories, or one file of records.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")],
    max_rollouts: Annotated[int, typer.Option(min=1, help="Rollouts on the page; of more, the last ones.")] = 500,
    thumbnails: Annotated[
        bool, typer.Option("--thumbnails/--no-thumbnails", help="Decode the frames that were shown.")
    ] = True,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the model's tokenizer, to show tokens as text.")
    ] = None,
) -> None:
    """Draw recorded rollouts: one HTML file that needs no network."""
    from verl_video_tools.trace.html import video_path, write_html
    from verl_video_tools.trace.records import read_records
    from verl_video_tools.trace.thumbnails import Thumbnails, decode_thumbnails

    token_text = None if tokenizer is None else _token_text(tokenizer)
    lines: deque[dict[str, Any]] = deque(maxlen=max_rollouts)
    num_read = 0
    pictures = Thumbnails()
    with progress_bars("read", *(["thumbnails"] if thumbnails else [])) as advance:
        for num_read, line in enumerate(read_records(records), start=1):
            lines.append(line)
            advance[0](num_read, num_read)
        if not lines:
            raise UsageError(f"{records}: no recorded rollout; give a folder with step_*.jsonl, or one such file")
        if thumbnails:
            on_videos = [(path, line["trajectory"]) for line in lines if (path := video_path(line)) is not None]
            pictures = decode_thumbnails(on_videos, advance[1])
    num_left_out = num_read - len(lines)
    num_bytes = write_html(
        list(lines), out, title=str(records), thumbnails=pictures, token_text=token_text, num_left_out=num_left_out
    )

    left_out = f", {num_left_out} earlier ones left out (--max-rollouts)" if num_left_out else ""
    num_pictures = sum(map(len, pictures.jpeg_of.values()))
    print(f"{out}: {len(lines)} rollouts{left_out}, {num_pictures} thumbnails, {num_bytes / 1e6:.1f} MB")
    if pictures.notes:
        example = next(iter(pictures.notes.values()))
        print(f"videos without thumbnails: {len(pictures.notes)}, for example {example}")


def _token_text(folder: Path) -> Callable[[int], str]:
    if not folder.is_dir():
        raise UsageError(f"--tokenizer {folder}: no such folder")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"--tokenizer {folder}: cannot be loaded ({error})") from error
    return lambda token_id: str(tokenizer.decode([token_id]))
