"""The verdicts of a published extractor beside ours: on the same answers, without asking anything again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verl_video_tools.core.grading import is_readable
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.data.extractors import Extractor
from verl_video_tools.data.formats import Benchmark, GradedItem
from verl_video_tools.evaluation.metrics import mean_metrics

SUFFIX = "_published"
"""Of figures by the published verdicts."""


@dataclass(frozen=True, slots=True)
class ReadItem:
    """An item with our verdict and the published one.

    Attributes:
        ours: as our grader or the judge has it.
        published: with the extractor's reading as the answer and its verdict as the label; ours where the extractor is
            made for another type of question.
    """

    ours: GradedItem
    published: GradedItem

    @property
    def differs(self) -> bool:
        """Whether one of the two verdicts is right and the other is not."""
        return (self.ours.label is AnswerLabel.CORRECT) != (self.published.label is AnswerLabel.CORRECT)

    def difference(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """A line of `differences.jsonl`.

        Args:
            named: what the item is called, and which time it was asked.
        """
        return {
            **named,
            "answer": self.ours.answer,
            "truth": self.ours.sample.ground_truth,
            "verdict": self.ours.label,
            "published_reading": self.published.answer,
            "published_verdict": self.published.label,
        }


def read_item(item: GradedItem, extractor: Extractor) -> ReadItem:
    """An item whose answer is also read by an extractor. A missing answer is an empty one to it."""
    reading = extractor.read(item.answer or "", item.sample)
    if reading is None:
        return ReadItem(item, item)
    label = AnswerLabel.CORRECT if reading.is_correct else AnswerLabel.INCORRECT
    return ReadItem(item, replace(item, answer=reading.text, label=label))


def num_unreadable(items: Sequence[GradedItem]) -> int:
    """Items in whose answer our grader finds no option, number or segment, or that have none."""
    return sum(not is_readable(item.answer, item.sample) for item in items)


def published_figures(items: Sequence[ReadItem], benchmark: Benchmark | None) -> Mapping[str, Any]:
    """`unreadable_published`, `differing`, and the benchmark's metrics by the published verdicts, whose names end with
    `_published`."""
    published = [item.published for item in items]
    return {
        "unreadable_published": sum(item.answer is None for item in published),
        "differing": sum(item.differs for item in items),
        **{f"{name}{SUFFIX}": value for name, value in mean_metrics(benchmark, published).items()},
    }
