"""Published extractors: how a benchmark's own scripts, or lmms-eval's, read an answer, beside our grader.

Each is our own code for a rule that is published as code; where it was read stands beside its name. Quirks are kept:
two evaluations compare only if they err alike.

letters.py       the letter of an option, by its form and place in the text
open.py          Video-MMMU's for open questions
times.py         the segment of a video
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verl_video_tools.core.config import resolve
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Sample

__all__ = ["EXTRACTORS", "Extractor", "Reading", "get_extractor"]

_HERE = "verl_video_tools.data.extractors"

EXTRACTORS = {
    "framethinker/exact": f"{_HERE}.letters:EXACT",
    "lmms-eval/charades_sta": f"{_HERE}.times:CHARADES_STA",
    "lmms-eval-2025/lvbench": f"{_HERE}.letters:FIRST_OF_FOUR",
    "lmms-eval-2025/videomme": f"{_HERE}.letters:FIRST_OF_FOUR",
    "lmms-eval-2025/videommmu": f"{_HERE}.open:VIDEO_MMMU",
    "videozoomer/letter": f"{_HERE}.letters:VIDEO_ZOOMER",
}
"""The rules by which the papers of our methods read answers. `framethinker` and `videozoomer` are the scripts of their
authors, infer.py of github.com/lcqysl/FrameThinker and the scorer of github.com/zsgvivo/VideoZoomer. LongVT's tables
were made with lmms-eval: `lmms-eval-2025` is what github.com/EvolvingLMMs-Lab/lmms-eval had until April 2026, when
several tasks got a new rule, `lmms-eval` what it still has."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an extractor makes of an answer.

    Attributes:
        text: the letter, or ``[start, end]`` in seconds, that it reads; of an open question the answer itself. None
            where it reads nothing.
        is_correct: its verdict.
    """

    text: str | None
    is_correct: bool


@dataclass(frozen=True)
class Extractor:
    """A published rule.

    Attributes:
        read: the reading of an answer (empty where the model gave none) to a question; None for a question of another
            type than the rule is made for.
        rule: what it does, in a line.
    """

    read: Callable[[str, Sample], Reading | None]
    rule: str


def get_extractor(spec: str) -> Extractor:
    """The extractor of a registered name, or at a Python path such as `my_module:MY_EXTRACTOR`.

    Raises:
        UsageError: there is none, or what is there is no `Extractor`.
    """
    found = resolve(spec, EXTRACTORS, "extractor")
    if not isinstance(found, Extractor):
        raise UsageError(f"the extractor {spec!r} must be an Extractor, got {found!r:.80}")
    return found
