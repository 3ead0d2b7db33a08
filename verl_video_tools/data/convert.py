"""Published annotation files as a file of our rows (docs/data.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Method
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles, read_rows
from verl_video_tools.data.formats.entries import Row
from verl_video_tools.data.formats.subtitles import asked_with_subtitles
from verl_video_tools.data.formats.training_sets import SOURCE_NAMES, get_source
from verl_video_tools.data.parquet import ROWS_PER_BATCH, row_writer
from verl_video_tools.data.picture_rows import turns_fault
from verl_video_tools.data.stock_rows import Conversion
from verl_video_tools.methods import get_method, method_names

_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_EXTRA_INFO = pa.struct(
    [
        ("question", pa.string()),
        ("video_path", pa.string()),
        ("question_type", pa.string()),
        ("options", pa.list_(pa.string())),
        ("video_segment", pa.list_(pa.float64())),
        ("classification", pa.string()),
        ("question_id", pa.string()),
        ("index", pa.int64()),
        ("split", pa.string()),
    ]
)
ROW_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(_MESSAGE)),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", _EXTRA_INFO),
    ]
)
"""The columns of converted files, the same for all formats, so that one run can read several files."""
TAUGHT_SCHEMA = pa.schema(
    [
        *(field for field in ROW_SCHEMA if field.name != "extra_info"),
        ("extra_info", pa.struct([*_EXTRA_INFO, ("image_paths", pa.list_(pa.string()))])),
        ("turns", pa.list_(pa.string())),
        ("template", pa.string()),
    ]
)
"""Those of rows for fine-tuning."""
_SUBTITLE = pa.struct([("start_seconds", pa.float64()), ("end_seconds", pa.float64()), ("text", pa.string())])


def convert_annotations(
    source_format: str | Benchmark,
    files: BenchmarkFiles,
    target: Path,
    *,
    method_name: str | None = None,
    split: str | None = None,
    taught: bool = False,
) -> Conversion:
    """Write the questions of published files as rows. `target` appears only once all of it is written.

    Args:
        source_format: its name, one of `training_sets.SOURCE_NAMES`, or a Python path (`get_source`); or its reader.
        method_name: `agent_name` of all rows; None: no such column, so that the run's default decides.
        split: replaces the format's own `extra_info.split`.
        taught: write rows for fine-tuning, whose turns the format holds; `method_name` says whose turns they are.

    Returns:
        Rows written, those with subtitles, and for each left out its place in the file, from 0, and why.

    Raises:
        UsageError: unknown format or method, files that cannot be read or written, no row is left, none of them has the
            subtitles that were asked for, or turns are wanted of a format without any or for no method.
    """
    source = get_source(source_format) if isinstance(source_format, str) else source_format
    if method_name is not None and method_name not in method_names():
        raise UsageError(f"there is no method {method_name!r}; choose one of: {', '.join(method_names())}")
    if taught and not source.has_turns:
        with_turns = ", ".join(name for name in SOURCE_NAMES if get_source(name).has_turns)
        raise UsageError(f"{source.name} has no turns to learn; these have: {with_turns}")
    if taught and method_name is None:
        raise UsageError("turns are written in a method's grammar; name it, such as longvt")
    method = get_method(method_name) if taught and method_name is not None else None
    schema = ROW_SCHEMA if method is None else TAUGHT_SCHEMA
    if method_name is not None:
        schema = schema.insert(1, pa.field("agent_name", pa.string()))
    if files.subtitles is not None and source.subtitle_form == "interleaved":
        schema = _with_subtitles(schema)
    skipped: list[str] = []
    num_written = num_with_subtitles = 0
    with row_writer(target, schema) as writer:
        good_rows = _good_rows(read_rows(source, files, taught=taught), files.annotations, skipped, method)
        while rows := list(islice(good_rows, ROWS_PER_BATCH)):
            for row in rows:
                _finish(row, num_written, method_name, split)
                num_written += 1
                num_with_subtitles += files.subtitles is not None and asked_with_subtitles(row)
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        if not num_written:
            first = f"; the first was left out: {skipped[0]}" if skipped else ""
            raise UsageError(f"{files.annotations} gives no row{first}")
    return Conversion(num_written, tuple(skipped), num_with_subtitles)


def _with_subtitles(schema: pa.Schema) -> pa.Schema:
    """The columns with `extra_info.subtitles`, which only rows that show some between their frames have."""
    place = schema.get_field_index("extra_info")
    extra_info = pa.struct([*schema.field(place).type, pa.field("subtitles", pa.list_(_SUBTITLE))])
    return schema.set(place, pa.field("extra_info", extra_info))


def _good_rows(
    rows: Iterator[tuple[int, Row | RowError]], annotations: Path, skipped: list[str], method: Method | None
) -> Iterator[dict[str, Any]]:
    for number, row in rows:
        fault = row if isinstance(row, RowError) else None if method is None else turns_fault(row["turns"], method)
        if isinstance(row, RowError) or fault is not None:
            skipped.append(f"{annotations}: row {number}: {fault}")
        else:
            yield row


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
