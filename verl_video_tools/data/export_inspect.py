"""Recorded rollouts as a log that `inspect view` opens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from verl_video_tools.core.errors import UsageError, writing
from verl_video_tools.core.files import whole_file
from verl_video_tools.data.export_hf import all_thumbnails
from verl_video_tools.data.inspect_log import InspectLog, Json
from verl_video_tools.records.records import read_again, run_folder
from verl_video_tools.records.sample import Entry, last_entries, read_entries, sample
from verl_video_tools.records.thumbnails import Thumbnails

_ROLLOUTS_AT_ONCE = 32


def export_inspect(
    records: Path,
    folder: Path,
    *,
    model: str | None = None,
    max_rollouts: int = 500,
    side_pixels: int | None = 256,
    overwrite: bool = False,
    exported: Callable[[int, int], None] = lambda done, wanted: None,
) -> tuple[Path, int, int]:
    """Write recorded rollouts as one log of Inspect; the file appears when it is complete.

    Args:
        records: folder of a run or of its records, or one file of records.
        folder: of logs, to write to; the file's name is made of the time of the records and the run's name.
        model: name of the model in the log; by default the run's.
        max_rollouts: in the log at most; of more, `records.sample.sample` chooses, the last steps first.
        side_pixels: longer side of a picture at most; None leaves pictures out.
        overwrite: replace an earlier log of the same records.
        exported: called with the numbers of rollouts written and wanted.

    Returns:
        The file, and the numbers of rollouts in it and of those left out.

    Raises:
        UsageError: there is no rollout, a line cannot be read, or the file exists or cannot be written.
    """
    entries = read_entries(records, lambda count: None)
    if not entries:
        raise UsageError(f"{records}: no recorded rollout; give a run's folder, or its folder of step_*.jsonl")
    entries = last_entries(entries)
    chosen = sample(entries, max_rollouts)
    written_at = max(entry.place.file.stat().st_mtime for entry in chosen)
    task = run_folder(records).resolve().name
    about = (task, model or task, datetime.fromtimestamp(int(written_at), UTC).isoformat())

    counted, log = InspectLog(*about), InspectLog(*about)
    out = folder / log.file_name()
    if out.exists() and not overwrite:
        raise UsageError(f"{out} exists; name another folder, or replace it with --overwrite")
    for entry in chosen:  # Inspect reads what is said of all samples before it reads the first
        counted.sample(read_again(entry.place), Thumbnails())
    advice = "name a folder that can be written"
    with writing(folder, advice):
        folder.mkdir(parents=True, exist_ok=True)
    with (
        writing(out, advice),
        whole_file(out) as partial,
        partial.open("w", encoding="utf-8") as file,
    ):
        file.write(f'{json.dumps(counted.head(), ensure_ascii=False)[:-1]}, "samples": [')
        for number, told in enumerate(_samples(log, chosen, side_pixels), start=1):
            file.write(f"{',' if number > 1 else ''}\n{json.dumps(told, ensure_ascii=False, default=str)}")
            exported(number, len(chosen))
        file.write("\n]}\n")
    return out, len(chosen), len(entries) - len(chosen)


def _samples(log: InspectLog, chosen: Sequence[Entry], side_pixels: int | None) -> Iterator[Json]:
    remaining = iter(chosen)
    while lines := [read_again(entry.place) for entry in islice(remaining, _ROLLOUTS_AT_ONCE)]:
        thumbnails = Thumbnails() if side_pixels is None else all_thumbnails(lines, side_pixels)
        yield from (log.sample(line, thumbnails) for line in lines)
