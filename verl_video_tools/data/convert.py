"""Published annotation files as a file of our rows (docs/data.md)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.core.errors import RowError, UsageError, writing
from verl_video_tools.core.files import write_lines
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.types import Method, Sample, StopReason, Trajectory
from verl_video_tools.data.append import work_through
from verl_video_tools.data.formats import SOURCE_NAMES, Benchmark, BenchmarkFiles, get_source, read_rows
from verl_video_tools.data.formats.entries import Row
from verl_video_tools.data.formats.subtitles import has_subtitles
from verl_video_tools.data.parquet import ROWS_PER_BATCH, row_writer
from verl_video_tools.data.picture_rows import turns_fault
from verl_video_tools.data.rows import ROW_SCHEMA, SFT_SCHEMA
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method, method_names
from verl_video_tools.methods.breakdown import reward_info

_DIALOGUES_AT_ONCE = 4


@dataclass(frozen=True)
class Conversion:
    """How a conversion went: rows written, for each row left out why, and rows that show subtitles."""

    num_written: int
    skipped: tuple[str, ...]
    num_with_subtitles: int = 0


def convert_annotations(
    source_format: str | Benchmark,
    files: BenchmarkFiles,
    target: Path,
    *,
    method_name: str | None = None,
    split: str | None = None,
    with_responses: bool = False,
    records: Path | None = None,
) -> Conversion:
    """Write the questions of published files as rows. `target` appears only once all of it is written.

    Args:
        source_format: its name, one of `formats.SOURCE_NAMES`, or a Python path (`get_source`); or its reader.
        method_name: `agent_name` of all rows; None: no such column, so that the run's default decides.
        split: replaces the format's own `extra_info.split`.
        with_responses: write rows for fine-tuning, whose turns the format holds; `method_name` says whose they are.
        records: execute these turns first, and leave out those that do not replay; the others' records are written
            here, one JSON line each, as `vvt data generate` writes them.

    Raises:
        UsageError: unknown format or method, files that cannot be read or written, no row is left, none of them has the
            requested subtitles, or turns are wanted of a format without any or for no method.
    """
    source = get_source(source_format) if isinstance(source_format, str) else source_format
    if method_name is not None and method_name not in method_names():
        raise UsageError(f"there is no method {method_name!r}; choose one of: {', '.join(method_names())}")
    method = None
    if with_responses:
        if not source.has_turns:
            with_turns = ", ".join(name for name in SOURCE_NAMES if get_source(name).has_turns)
            raise UsageError(f"{source.name} has no turns to learn from; the formats with turns are: {with_turns}")
        if method_name is None:
            raise UsageError("turns are written in a method's grammar; name it, such as longvt")
        method = get_method(method_name)
    elif records is not None:
        raise UsageError("only dialogues are replayed: those of a format with turns (--turns)")
    schema = ROW_SCHEMA if method is None else SFT_SCHEMA
    if method_name is not None:
        schema = schema.insert(1, pa.field("agent_name", pa.string()))
    faults: dict[int, str] = {}
    lines: list[dict[str, Any]] = []
    num_written = num_with_subtitles = 0
    with row_writer(target, schema) as writer:
        good_rows = _good_rows(read_rows(source, files, with_responses=with_responses), faults, method)
        while rows := list(islice(good_rows, ROWS_PER_BATCH)):
            if method is not None and records is not None:
                replayed = asyncio.run(_replay(rows, method, faults))
                rows = [(number, row) for number, row in rows if number in replayed]
                lines += [replayed[number] for number, _ in rows]
            for _, row in rows:
                _finish(row, num_written, method_name, split)
                num_written += 1
                num_with_subtitles += has_subtitles(row)
            writer.write_table(pa.Table.from_pylist([row for _, row in rows], schema=schema))
        skipped = tuple(f"{files.annotations}: row {number}: {faults[number]}" for number in sorted(faults))
        if not num_written:
            first = f"; the first was left out: {skipped[0]}" if skipped else ""
            raise UsageError(f"{files.annotations} gives no row{first}")
        if records is not None:
            with writing(records, "name a file in a folder that can be written"):
                records.parent.mkdir(parents=True, exist_ok=True)
                write_lines(records, lines)
    return Conversion(num_written, skipped, num_with_subtitles)


def _good_rows(
    rows: Iterator[tuple[int, Row | RowError]], faults: dict[int, str], method: Method | None
) -> Iterator[tuple[int, Row]]:
    """Rows with their places in the annotations. Bad ones are left out, and their faults added to `faults`."""
    for number, row in rows:
        if isinstance(row, RowError):
            faults[number] = str(row)
        elif method is not None and (fault := turns_fault(row["turns"], method)) is not None:
            faults[number] = fault
        else:
            yield number, row


def _finish(row: Row, index: int, method_name: str | None, split: str | None) -> None:
    """The format's name of a question becomes `question_id`; `index` is its place in our file. The video's path becomes
    absolute, as a run may start in another folder; links stay, which may be all that gives the video's name."""
    extra_info = row["extra_info"]
    if "video_path" in extra_info:
        extra_info["video_path"] = os.path.abspath(extra_info["video_path"])
    else:
        extra_info["image_paths"] = [os.path.abspath(path) for path in extra_info["image_paths"]]
    extra_info["question_id"], extra_info["index"] = str(extra_info["index"]), index
    extra_info["split"] = split or extra_info["split"]
    if method_name is not None:
        row["agent_name"] = method_name


# ------------------------------------------------------------------------------------------- dialogues executed anew


async def _replay(rows: Sequence[tuple[int, Row]], method: Method, faults: dict[int, str]) -> dict[int, dict[str, Any]]:
    """Execute the turns of rows as fine-tuning will.

    Args:
        rows: with their places.
        faults: gets what does not replay: its video cannot be read, a call was not executed, or it does not end with
            its last turn's answer.

    Returns:
        The records of the others by their place. They share `extra_info` with the row, which is finished later.
    """
    records: dict[int, dict[str, Any]] = {}

    async def replay(numbered_row: tuple[int, Row]) -> None:
        number, row = numbered_row
        sample = Sample.from_row(row)
        trajectory = await execute(method, sample, row["turns"])
        if (fault := _replay_fault(trajectory, len(row["turns"]))) is not None:
            faults[number] = fault
            return
        try:
            method.check_sample(sample, None)
            reward = await method.score(trajectory, sample, None)
        except (RowError, UsageError):  # only a judge could say what it earns, or the row cannot be graded
            reward = zero_reward(method)
        records[number] = {
            "step": 0,
            "uid": str(row["extra_info"]["index"]),
            "session_id": 0,
            "agent_name": method.name,
            "data_source": row["data_source"],
            "ground_truth": row["reward_model"]["ground_truth"],
            "extra_info": row["extra_info"],
            "reward": reward_info(method, reward, sample, False),
            "trajectory": trajectory.to_dict(),
        }

    await work_through(rows, replay, _DIALOGUES_AT_ONCE)
    return records


def _replay_fault(trajectory: Trajectory, num_turns: int) -> str | None:
    refused = "; ".join(str(call.error) for call in trajectory.calls() if not call.ok)
    if not trajectory.turns or trajectory.flags:
        return f"it does not replay: {trajectory.error or refused or ', '.join(trajectory.flags)}"
    if refused:
        return f"a call does not replay: {refused}"
    if trajectory.stop_reason is not StopReason.ANSWER or len(trajectory.turns) < num_turns:
        return f"it ends after turn {len(trajectory.turns)} of {num_turns}: {trajectory.stop_reason}"
    return None
