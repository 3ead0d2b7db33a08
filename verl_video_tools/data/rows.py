"""Columns of files of rows, and rows of your own questions: `make_row` and `write_rows` (docs/own-data.md)."""

from __future__ import annotations

import json
import os
import string
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.numbers import canonical_number
from verl_video_tools.core.truths import default_question_type
from verl_video_tools.core.types import Method, QuestionType, Sample
from verl_video_tools.data.formats.entries import Row, benchmark_row, without_letters
from verl_video_tools.data.formats.fields import letter_of, segment, split_options
from verl_video_tools.data.parquet import write_table
from verl_video_tools.data.picture_rows import weights_of_turns
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
SFT_SCHEMA = pa.schema(
    [
        *(field for field in ROW_SCHEMA if field.name != "extra_info"),
        ("extra_info", pa.struct([*_EXTRA_INFO, ("image_paths", pa.list_(pa.string()))])),
        ("turns", pa.list_(pa.string())),
        ("turn_weights", pa.list_(pa.float64())),
        ("template", pa.string()),
    ]
)
"""Those of rows for fine-tuning."""


def make_row(
    question: str,
    answer: str | float | Sequence[float],
    video_path: str | os.PathLike[str],
    *,
    options: Sequence[str] = (),
    question_type: QuestionType | None = None,
    video_segment_seconds: Sequence[float] | None = None,
    method: str | None = None,
    data_source: str = "own",
    split: str = "train",
    index: int = 0,
    question_id: str | None = None,
    classification: str | None = None,
    turns: Sequence[str] = (),
    turn_weights: Sequence[float] = (),
) -> Row:
    """One question about one video as a row, in the form of docs/rows.md that training, evaluation and tools read.

    The video is not opened, and need not exist yet.

    Args:
        question: the text that the model reads. Options are appended to it, a line each, unless it ends with these
            lines; where `options` is empty, a question that ends with lines such as ``A. a lamp`` has these as options.
        answer: the truth. With options the right one's letter or text; else a text, a number, or ``[start, end]`` in
            seconds.
        video_path: made absolute; links stay as they are. May name a part of the file, ``v.mp4#t=5,10`` in seconds, or
            images, ``folder#fps=2`` or ``list.json`` (docs/own-data.md).
        options: texts in the order of their letters; letters that all of them begin with are dropped.
        question_type: None: `mc` with options or where the answer is a letter, `segment` for ``[start, end]``,
            `numeric` for a number, else `open`, which needs a judge.
        video_segment_seconds: [start, end] of the part that shows the answer; for methods that reward looking there.
        method: the row's `agent_name`, such as ``longvt``; None leaves it to the run's `default_agent_loop`.
        data_source: name of the data set; verl groups validation metrics by it.
        split: such as ``train``; in messages and records only.
        index: the row's place in its file, for messages and records.
        question_id: what the data set calls the question.
        classification: for VideoBrain (docs/classify.md).
        turns: what the assistant says in an example rollout to imitate, call after call to the answer, without end
            tokens; for fine-tuning (docs/cold-start.md).
        turn_weights: of the loss on each turn, 0 for none; by default 1 for each.

    Returns:
        The row, with the columns of `ROW_SCHEMA`, or of `SFT_SCHEMA` with turns, and `agent_name` if `method` is given.

    Raises:
        RowError: the question is empty, the answer names none of the options, or one of two equal ones, the type does
            not exist or the segment does not start before it ends.
        UsageError: there is no such method, or none is named for turns.
    """
    if turns and method is None:
        raise UsageError("turns are written in a method's grammar; name it, such as method='longvt'")
    if method is not None and method not in method_names():
        raise UsageError(f"there is no method {method!r}; choose one of: {', '.join(method_names())}")
    texts = without_letters(options)
    if texts and split_options(question)[1] == texts:  # they stand below the question as well
        question, _ = split_options(question)
    if texts and question_type not in (None, "mc"):
        raise RowError(f"a question with options is of type mc, got {question_type!r}; leave out one of the two")
    if not texts and question_type in (None, "mc"):
        question, texts = split_options(question)
    truth = _text_of(answer)
    if texts:
        truth = letter_of(truth, texts, "answer")
        _check_only(truth, texts)
    row = benchmark_row(
        data_source,
        index=index,
        split=split,
        video_path=Path(os.path.abspath(video_path)),
        question=question,
        truth=truth,
        options=texts,
        question_type=question_type or _type_of(truth, texts),
        video_segment_seconds=None if video_segment_seconds is None else _ends_of(video_segment_seconds),
    )
    row["extra_info"].update(
        {
            **({} if question_id is None else {"question_id": question_id}),
            **({} if classification is None else {"classification": classification}),
        }
    )
    if method is not None:
        row["agent_name"] = method
    if turns:
        row |= {"turns": list(turns), "template": "own", "turn_weights": list(turn_weights) or None}
        weights_of_turns(row)
    Sample.from_row(row)
    return row


def write_rows(rows: Iterable[Mapping[str, Any]], path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write rows of `make_row` as a parquet file, whole or not at all, with the columns that converted files have.

    Args:
        overwrite: replace a file that exists.

    Returns:
        The number of rows.

    Raises:
        RowError: a row has a field that such files do not have, or lacks one.
        UsageError: there are no rows, or the file exists or cannot be written.
    """
    target = Path(path)
    if target.exists() and not overwrite:
        raise UsageError(f"{target} exists; give another name, or overwrite=True to replace it")
    all_rows = [dict(row) for row in rows]
    if not all_rows:
        raise UsageError(f"there are no rows to write to {target}")
    schema = SFT_SCHEMA if any("turns" in row for row in all_rows) else ROW_SCHEMA
    if any("agent_name" in row for row in all_rows):
        schema = schema.insert(1, pa.field("agent_name", pa.string()))
    entries = {field.name for field in schema.field("extra_info").type}
    for number, row in enumerate(all_rows):
        if different := ({*row} ^ {*schema.names}) or ({*row["extra_info"]} - entries):
            raise RowError(
                f"row {number} lacks {min(different)!r}, or has it and others do not; files of rows hold what make_row "
                "makes, the same for all rows"
            )
    write_table(pa.Table.from_pylist(all_rows, schema=schema), target)
    return len(all_rows)


def _check_only(letter: str, options: Sequence[str]) -> None:
    """Raises RowError if another option equals the right one: choosing it would count as wrong."""
    right = string.ascii_uppercase.index(letter)
    same = [string.ascii_uppercase[n] for n, text in enumerate(options) if text == options[right] and n != right]
    if same:
        raise RowError(f"the options {letter} and {same[0]} are equal, {options[right]!r:.80}; change the wrong one")


def _text_of(answer: Any) -> str:
    """A truth as rows have it: lists as JSON."""
    return json.dumps(list(answer)) if isinstance(answer, list | tuple) else str(answer).strip()


def _type_of(truth: str, options: Sequence[str]) -> QuestionType:
    likely = default_question_type(truth, options)
    return "numeric" if likely == "open" and canonical_number(truth) is not None else likely


def _ends_of(segment_seconds: Sequence[float]) -> tuple[float, float]:
    ends = segment(*segment_seconds) if len(segment_seconds) == 2 else None
    if ends is None:
        raise RowError(
            f"the segment must be [start, end] in seconds with 0 <= start < end, got {segment_seconds!r:.80}"
        )
    return ends


class RowMethods:
    """The methods that rows name, as a run would configure them.

    Args:
        default: method of rows that name none.
        settings: fields of the methods that differ from their defaults, as `field`, or as `method.field` (also
            `video_tools.method.field`) where only one of several methods has it.

    Raises:
        UsageError: no such method or field.
    """

    def __init__(self, default: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.default = default
        self._methods: dict[str, Method] = {}
        self._fields: dict[str, dict[str, Any]] = defaultdict(dict)
        for key, value in (settings or {}).items():
            name, _, field = key.removeprefix("video_tools.").rpartition(".")
            if name and name not in method_names():
                raise UsageError(f"setting {key!r}: there is no method {name!r}; write it as FIELD or METHOD.FIELD")
            self._fields[name][field] = value
        for named in {default, *self._fields} - {None, ""}:
            self.of(named)

    def of(self, agent_name: str | None) -> Method | None:
        """The method of a row; None where it is none of ours.

        Raises:
            UsageError: the settings do not fit it.
        """
        name = agent_name or self.default
        if name is None or name not in method_names():
            return None
        if name not in self._methods:
            self._methods[name] = get_method(name, **{**self._fields[""], **self._fields[name]})
        return self._methods[name]
