"""Rows as loops and rewards read them: what a row cannot mean is told by its field and number."""

from typing import Any

import numpy as np
import pytest

from verl_video_tools.core.errors import RowError
from verl_video_tools.core.types import Sample


def row(truth: Any = "B", **extra_info: Any) -> dict[str, Any]:
    asked = {"question": "What falls?\nA. a cup\nB. a vase", "video_path": "clip.mp4", "index": 7, "split": "train"}
    return {"reward_model": {"style": "rule", "ground_truth": truth}, "extra_info": {**asked, **extra_info}}


@pytest.mark.parametrize("options", [["a cup", "a vase"], '["a cup", "a vase"]', np.array(["a cup", "a vase"])])
def test_a_row_as_files_hold_it(options: Any) -> None:
    sample = Sample.from_row(row(options=options, question_type="mc", video_segment=np.array([1, 2.5])))
    assert (sample.options, sample.video_segment_seconds) == (("a cup", "a vase"), (1.0, 2.5))
    assert (sample.ground_truth, sample.question_type) == ("B", "mc")


@pytest.mark.parametrize(
    ("truth", "kind"),
    [("B", "mc"), ("a vase", "open"), ("7", "open"), ("[2.5, 7]", "segment"), ("[7, 2.5]", "open"), ('"25"', "open")],
)
def test_a_row_that_names_no_type(truth: str, kind: str) -> None:
    sample = Sample.from_row(row(truth, question_type=None, options=None, video_segment=None))
    assert (sample.question_type, sample.options, sample.video_segment_seconds) == (kind, (), None)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("question", "", "extra_info.question is missing or empty"),
        ("question", ["What", "falls?"], r"extra_info.question must be a text, got \['What', 'falls\?'\]"),
        ("video_path", np.array(["a.mp4", "b.mp4"]), "extra_info.video_path must be a text, got array"),
        ("question_type", np.array([]), "extra_info.question_type must be a text, got array"),
        ("question_type", "oe", "question_type must be one of mc, numeric, regression, open, segment, got 'oe'"),
        ("options", "a cup, a vase", "options must be a list of texts, or the JSON of one, got 'a cup, a vase'"),
        ("options", '{"A": "a cup"}', "options must be a list"),
        ("options", {"A": "a cup"}, "options must be a list"),
        ("options", "4", "options must be a list"),
        ("options", "[" * 100_000, "options must be a list"),
        ("video_segment", [], r"video_segment must be \[start, end\] in seconds, or be left out, got \[\]"),
        ("video_segment", [None, None], "video_segment must be"),
        ("video_segment", [1, 2, 3], "video_segment must be"),
        ("video_segment", "1-2", "video_segment must be"),
    ],
)
def test_a_row_that_makes_no_sense(field: str, value: Any, message: str) -> None:
    with pytest.raises(RowError, match=f"^row index=7 split=train: .*{message}"):
        Sample.from_row(row(**{field: value}))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("reward_model", "B", "row index=7 split=train: reward_model must hold named entries, got 'B'"),
        ("reward_model", None, "row index=7 split=train: reward_model.ground_truth is missing"),
        ("extra_info", '{"index": 7}', "extra_info must hold named entries, got '{\"index\": 7}'"),
        ("extra_info", [7], r"extra_info must hold named entries, got \[7\]"),
        ("extra_info", None, "extra_info.question is missing or empty"),
    ],
)
def test_a_column_without_named_entries(column: str, value: Any, message: str) -> None:
    with pytest.raises(RowError, match=message):
        Sample.from_row({**row(), column: value})
