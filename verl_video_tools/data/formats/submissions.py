"""Answers to questions whose truths are not published, in the form that whoever has the truths reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from verl_video_tools.core.choices import chosen_option
from verl_video_tools.core.types import Sample
from verl_video_tools.data.formats.entries import Row


class Submission(NamedTuple):
    """A file to hand in."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model said to a question without a truth.

    Attributes:
        answer: None if it gave none, or the item failed.
    """

    sample: Sample
    answer: str | None

    @property
    def letter(self) -> str | None:
        """Of the option that the answer names, if it names one."""
        return chosen_option(self.answer or "", self.sample.options) if self.sample.options else None

    @property
    def question_id(self) -> str:
        """What the benchmark calls the question."""
        return str(self.sample.extra_info["index"])


def has_truth(row: Row | Mapping[str, Any]) -> bool:
    """Whether a row of a benchmark can be graded; without a truth it is only asked."""
    return bool(row["reward_model"]["ground_truth"] != "")


def json_submission(name: str, content: Mapping[str, Any] | Iterable[Any]) -> Submission:
    """As indented JSON, in the order given."""
    content = dict(content) if isinstance(content, Mapping) else list(content)
    return Submission(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
