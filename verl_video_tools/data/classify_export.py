"""What becomes of classified questions: rows for fine-tuning, rows for reinforcement learning, and a report."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.data.classify import CATEGORY_OF_LETTER, Category, Classification, Evaluation
from verl_video_tools.data.export_rollouts import rows_of_records, table_of_rows
from verl_video_tools.data.parquet import read_table, with_texts, write_table
from verl_video_tools.data.sft import ExportReport

LETTER_FIELD, CATEGORY_FIELD = "classification", "question_category"
"""Fields of `extra_info`: the letter, by which VideoBrain's reward pays, and the name of its category."""

_KEPT: tuple[Category, ...] = ("direct", "adaptive", "active")


@dataclass(frozen=True)
class Export:
    """Which rows went where; none went into both files.

    Attributes:
        rollouts: what became of the teacher's rollouts on Adaptive and Active rows.
    """

    sft_rows: list[int]
    rl_rows: list[int]
    rollouts: ExportReport


def export_classified(
    rows_parquet: str | Path,
    folder: Path,
    evaluation: Evaluation,
    found: Classification,
    *,
    sft_share: float,
) -> Export:
    """Write `sft.parquet` and `rl.parquet` into `folder`; a file that would have no rows is not written.

    Fine-tuning takes rollouts of the teacher on Adaptive and Active rows (paper 3.3), with and without calls. The paper
    does not say whether these are right; ours are, and follow the method's grammar to the letter. Reinforcement
    learning takes all other rows of the three categories. Letter and category are in `extra_info` of both.

    Args:
        sft_share: of the rows with such a rollout, the share that fine-tuning takes, 0 to 1; every run draws the same.

    Raises:
        UsageError: the file of rows cannot be read.
    """
    report = ExportReport()
    usable: dict[int, dict[str, Any]] = {}
    for row in found.in_category("adaptive", "active"):
        rows, one = rows_of_records([evaluation.teacher[row]], min_accuracy=None, min_iou=0.0, well_formed=True)
        report.kept.update(one.kept)
        report.dropped.update(one.dropped)
        for sft_row in rows:
            usable[row] = {**sft_row, "extra_info": {**sft_row["extra_info"], **_labels(found.letters[row])}}
    sft_rows = sorted(random.Random(0).sample(sorted(usable), round(sft_share * len(usable))))
    rl_rows = sorted(set(found.in_category(*_KEPT)) - set(sft_rows))
    rl_table = read_table(rows_parquet).take(pa.array(rl_rows, pa.int64()))
    tables = {
        "sft.parquet": table_of_rows([usable[row] for row in sft_rows]),
        "rl.parquet": _with_labels(rl_table, [found.letters[row] for row in rl_rows]) if rl_rows else rl_table,
    }
    for name, table in tables.items():
        if table.num_rows:
            write_table(table, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)  # of an earlier run, with other options
    return Export(sft_rows, rl_rows, report)


def write_report(folder: Path, evaluation: Evaluation, found: Classification, exported: Export) -> str:
    """Write `report.json` (counts and shares by data source, letters, failures, rows of both files) and `report.md`.

    Returns:
        The Markdown: a table of counts and shares.
    """
    sources: dict[str, list[int]] = defaultdict(list)
    for row, record in sorted(evaluation.base.items()):
        sources[str(record["data_source"])].append(row)
    counts = {name: _counts(sources[name], found) for name in sorted(sources)}
    counts["all"] = _counts(list(evaluation.base), found)
    report = {
        "counts": counts,
        "models": {
            "base": sorted({str(record["model"]) for record in evaluation.base.values()}),
            "teacher": sorted({str(record["model"]) for record in evaluation.teacher.values()}),
        },
        "letters": {str(row): letter for row, letter in sorted(found.letters.items())},
        "failures": [asdict(failure) for failure in found.failures],
        "sft_rows": exported.sft_rows,
        "rl_rows": exported.rl_rows,
        "teacher_rollouts_dropped": dict(sorted(exported.rollouts.dropped.items())),
    }
    table = _markdown(counts)
    (folder / "report.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(table, encoding="utf-8")
    return table


def _counts(rows: Sequence[int], found: Classification) -> dict[str, Any]:
    """Rows by category and letter, and what share each category has of the rows that are kept."""
    letters = Counter(found.letters[row] for row in rows if row in found.letters)
    categories: dict[str, int] = dict.fromkeys((*_KEPT, "filtered"), 0)
    for letter, number in letters.items():
        categories[CATEGORY_OF_LETTER[letter]] += number
    num_kept = sum(categories[category] for category in _KEPT)
    return {
        "rows": len(rows),
        **categories,
        "failed": len(rows) - letters.total(),
        "shares": {category: categories[category] / max(1, num_kept) for category in _KEPT},
        "letters": dict(sorted(letters.items())),
    }


def _markdown(counts: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| data source | rows | direct | adaptive | active | filtered | failed |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, of_source in counts.items():
        shares = [f"{of_source[category]} ({of_source['shares'][category]:.1%})" for category in _KEPT]
        cells = [name, of_source["rows"], *shares, of_source["filtered"], of_source["failed"]]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, "", "Shares are of the rows in the three categories.", ""])


def _labels(letter: str) -> dict[str, str]:
    return {LETTER_FIELD: letter, CATEGORY_FIELD: CATEGORY_OF_LETTER[letter]}


def _with_labels(table: pa.Table, letters: Sequence[str]) -> pa.Table:
    """The rows with letter and category in `extra_info`, whose other fields keep value and type."""
    labels = {LETTER_FIELD: letters, CATEGORY_FIELD: [CATEGORY_OF_LETTER[letter] for letter in letters]}
    extra_info = with_texts(table.column("extra_info").combine_chunks(), labels)
    return table.set_column(table.column_names.index("extra_info"), "extra_info", extra_info)
