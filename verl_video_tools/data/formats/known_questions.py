"""Rows of the questions that dialogues are about: they know the video, the truth and the segment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from verl_video_tools.core.clips import read_clip
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.sample import Sample
from verl_video_tools.core.truths import QuestionType
from verl_video_tools.data.parquet import row_batches


@dataclass(frozen=True)
class KnownQuestion:
    """What a row says of its question.

    Attributes:
        segment_seconds: [start, end] of what shows the answer.
    """

    video_path: str
    truth: str
    question_type: QuestionType
    segment_seconds: tuple[float, float] | None


class KnownQuestions:
    """Questions of a file of rows, by their text without regard to white space and case."""

    def __init__(self, path: Path) -> None:
        """
        Args:
            path: parquet file of our rows (docs/rows.md).

        Raises:
            UsageError: it cannot be read, or holds no rows about videos.
        """
        # Dictionaries as sets in order: a data set may ask the same of 100,000 videos.
        self._questions: dict[str, dict[KnownQuestion, None]] = defaultdict(dict)
        self._of_video: dict[tuple[str, str], dict[KnownQuestion, None]] = defaultdict(dict)
        for sample in _samples(path):
            known = KnownQuestion(
                sample.video_path, sample.ground_truth, sample.question_type, sample.video_segment_seconds
            )
            asked = _plain(sample.question)
            self._questions[asked][known] = None
            self._of_video[asked, PurePath(read_clip(known.video_path).file).stem][known] = None
        if not self._questions:
            raise UsageError(f"{path} holds no rows about videos; make some with `vvt data convert`")

    def find(self, question: Mapping[str, Any], names: Sequence[str]) -> KnownQuestion | None:
        """The row that asks the same; None where none does.

        Args:
            question: `question` and `options`, as `fields.question_of_text` gives them.
            names: of its video, whole paths or not; of several rows that ask the same, the one about this video.

        Raises:
            RowError: several ask the same, about several videos or with several truths, and no name decides.
        """
        lines = [question["question"], *(f"{chr(65 + n)}. {text}" for n, text in enumerate(question["options"]))]
        asked = _plain("\n".join(lines))
        same = self._questions.get(asked, {})
        if len(same) > 1:
            named = (self._of_video.get((asked, PurePath(name).stem), {}) for name in names)
            same = {known: None for found in named for known in found} or same
        if len(same) > 1:
            told = ", ".join(PurePath(known.video_path).name for known in islice(same, 3))
            raise RowError(f"several rows ask its question, about {told}, and the dialogue does not say which is meant")
        return next(iter(same), None)


@lru_cache(maxsize=1)
def known_questions(path: Path) -> KnownQuestions:
    """The questions of a file, read once."""
    return KnownQuestions(path)


def _samples(path: Path) -> Iterator[Sample]:
    for batch in row_batches(path, ("reward_model", "extra_info")):
        for row in batch.to_pylist():
            try:
                sample = Sample.from_row(row)
            except RowError:
                continue  # `vvt data validate` names those
            if sample.video_path:
                yield sample


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
