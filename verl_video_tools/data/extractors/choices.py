"""What extractors of letters share: the verdict on a letter, and the option that some scripts draw where they read
none."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence

from verl_video_tools.core.truths import option_letter
from verl_video_tools.core.types import Sample
from verl_video_tools.data.extractors import Extractor, Reading

ReadLetter = Callable[[str, Sequence[str]], str | None]
"""The letter that an answer gives, of a question with these options; None where none is read."""


def letter_extractor(read: ReadLetter, rule: str, *, draws: bool = False) -> Extractor:
    """An extractor of multiple-choice questions.

    Args:
        draws: where no letter is read the published script takes a random option. Here the question decides which,
            so that a result has the same figures each time.
    """

    def reading(answer: str, sample: Sample) -> Reading | None:
        if sample.question_type != "mc":
            return None
        truth = option_letter(sample.ground_truth, sample.options)
        letter = read(answer, sample.options)
        chosen = _drawn(sample) if letter is None and draws else letter
        return Reading(letter, chosen is not None and chosen == truth)

    return Extractor(reading, rule)


def letters_of(options: Sequence[str]) -> str:
    """The letters of so many options."""
    return string.ascii_uppercase[: len(options)]


def _drawn(sample: Sample) -> str:
    seed = f"{sample.extra_info.get('index')} {sample.question}"
    return random.Random(seed).choice(letters_of(sample.options))
