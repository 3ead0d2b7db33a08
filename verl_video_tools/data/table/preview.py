"""What a table is taken for, shown before anything is written."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table as TextTable

from verl_video_tools.core.clips import read_clip
from verl_video_tools.data.table.columns import FIELDS
from verl_video_tools.data.table.reader import Table
from verl_video_tools.data.table.values import as_text, is_empty, named_video

_ROWS_SHOWN = 3
_FAULTS_SHOWN = 5
_CELL_CHARACTERS = 44
_FOUND = {"map": "--map", "name": "its name", "values": "its values"}


def show(source: Table, rows: list[tuple[int, Mapping[str, Any]]], faults: list[str], console: Console) -> None:
    """Columns, first rows, how paths are resolved, one finished row, and faults among the first rows.

    Args:
        rows: of `reader.survey`, as are the faults.
    """
    table, columns = source.table, source.cells
    records = [record for record in table.first if isinstance(record, dict)][:_ROWS_SHOWN]
    text = TextTable("field", "column", "found by", *(f"row {number}" for number in range(len(records))))
    for field in FIELDS:
        if field not in columns.names:
            text.add_row(field, "none", "", *("" for _ in records))
            continue
        cells = [" | ".join(map(_cell, columns.values(record, field))) for record in records]
        found = _FOUND[columns.found_by[field]]
        text.add_row(field, " + ".join(columns.names[field]), found, *(cell[:_CELL_CHARACTERS] for cell in cells))
    console.print(f"{table.path}: {len(table.files)} file{'s' if len(table.files) > 1 else ''}", soft_wrap=True)
    console.print(text)
    for line in _lines(source, rows, faults):
        console.print(line, soft_wrap=True)


def _lines(source: Table, rows: list[tuple[int, Mapping[str, Any]]], faults: list[str]) -> Iterator[str]:
    table, columns = source.table, source.cells
    unused = [name for name in table.columns if name not in columns.used]
    if unused:
        yield f"not used: {', '.join(unused)}"
    if columns.answer_form != "text":
        yield f"answers are numbers of options, counted {columns.answer_form}"
    folders = table.folders if source.videos is None else (source.videos,)
    if any(isinstance(record, dict) and _is_relative(columns.value(record, "video")) for record in table.first):
        yield f"relative paths of videos start from {' or '.join(os.path.abspath(folder) for folder in folders)}"
    if rows:
        number, row = rows[0]
        extra_info = row["extra_info"]
        yield f"row {number} becomes:"
        for line in str(extra_info["question"]).splitlines():
            yield f"  | {line}"
        yield f"  truth {row['reward_model']['ground_truth']!r:.80}, type {extra_info['question_type']}"
        yield f"  video {extra_info['video_path']}"
        if "video_segment" in extra_info:
            yield "  segment {:g} s to {:g} s".format(*extra_info["video_segment"])
        types = Counter(str(row["extra_info"]["question_type"]) for _, row in rows)
        told = ", ".join(f"{name} {count}" for name, count in types.most_common())
        yield f"types of the first {len(rows)} rows: {told}" + ("; open questions need a judge" * ("open" in types))
    if faults:
        yield f"{len(faults)} of the first {len(faults) + len(rows)} rows cannot be written:"
        yield from (f"  {fault}" for fault in faults[:_FAULTS_SHOWN])


def _cell(value: Any) -> str:
    return "" if is_empty(value) else " ".join(as_text(value).split())


def _is_relative(value: Any) -> bool:
    try:
        return not os.path.isabs(read_clip(named_video(value)).file)
    except ValueError:  # told with the row
        return False
