"""Published extractors: how a paper's own scripts read the letter of an option, beside our grader.

Each is our own code for a rule that is published as code. Quirks are kept: two evaluations compare only if they err
alike. Rules that lmms-eval still has are applied there (docs/evaluation.md).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from verl_video_tools.core.config import resolve
from verl_video_tools.core.errors import UsageError

_LEADS = ("The best answer is", "The correct answer is", "The answer is", "The answer")


@dataclass(frozen=True)
class Extractor:
    """A published rule for multiple-choice questions.

    Attributes:
        read: the letter that an answer (empty where the model gave none) gives to a question with these options, or
            None.
        rule: what it does, in a line.
    """

    read: Callable[[str, Sequence[str]], str | None]
    rule: str


def exact_letter(answer: str, options: Sequence[str]) -> str | None:
    """Source: infer.py of github.com/lcqysl/FrameThinker."""
    return answer if answer in set(string.ascii_uppercase[: len(options)]) else None


def first_letter(answer: str, options: Sequence[str] = ()) -> str | None:
    """The first letter from A to D anywhere, also within a word, once phrases that lead to an answer are cut out.

    Source: `extract_characters_regex` of lmms_eval/tasks/videomme/utils.py until April 2026.
    """
    text = answer.strip()
    for lead in _LEADS:
        text = text.replace(lead, "")
    match = re.search("[ABCD]", text)
    return match[0] if match else None


def bare_boxed_or_dotted_letter(answer: str, options: Sequence[str] = ()) -> str | None:
    """Source: the letter rule of VideoZoomer's scorer (github.com/zsgvivo/VideoZoomer), which takes any of the three
    that is right; here the first counts."""
    text = answer.strip()
    if len(text) == 1:
        return text
    letters = re.findall(r"\\boxed\{([A-Z])\}", text) or re.findall(r"([A-Z])\.", text)
    return letters[-1] if letters else None


EXACT = Extractor(exact_letter, "the letter in upper case and nothing else")
FIRST_OF_FOUR = Extractor(
    first_letter,
    "the first character from A to D, also within a word, after phrases such as `The answer is` are cut out",
)
VIDEO_ZOOMER = Extractor(
    bare_boxed_or_dotted_letter,
    "the letter alone, else that in the last \\boxed{}, else the last letter before a period",
)

EXTRACTORS = {
    "framethinker/exact": f"{__name__}:EXACT",
    "lmms-eval-2025/lvbench": f"{__name__}:FIRST_OF_FOUR",
    "lmms-eval-2025/videomme": f"{__name__}:FIRST_OF_FOUR",
    "videozoomer/letter": f"{__name__}:VIDEO_ZOOMER",
}
"""The rules by which the papers of our methods read answers. LongVT's tables were made with lmms-eval:
`lmms-eval-2025` is what github.com/EvolvingLMMs-Lab/lmms-eval had until April 2026, when these tasks got a new rule."""


def get_extractor(spec: str) -> Extractor:
    """The extractor of a registered name, or at a Python path such as `my_module:MY_EXTRACTOR`.

    Raises:
        UsageError: there is none, or what is there is no `Extractor`.
    """
    extractor = resolve(spec, EXTRACTORS, "extractor")
    if not isinstance(extractor, Extractor):
        raise UsageError(f"the extractor {spec!r} must be an Extractor, got {extractor!r:.80}")
    return extractor
