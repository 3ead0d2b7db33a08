"""Scores in whole numbers from 1 to 5, for answers that no label stands for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.reasoning import without_reasoning
from verl_video_tools.services.judge.verdict import reminder

LOWEST, HIGHEST = 1, 5
_FENCED = re.compile(r"```(?:json)?\s*(\{[^{}]*\})\s*```")


@dataclass(frozen=True)
class Rubric:
    """Packaged instructions, and the scores that they ask for."""

    prompt: str
    """Name of the file in this package."""
    scores: tuple[str, ...]
    shows_question: bool = True
    """Else the judge gets reference and answer alone."""

    @property
    def lowest(self) -> dict[str, int]:
        """The scores of no answer at all, of which no judge is asked."""
        return dict.fromkeys(self.scores, LOWEST)

    @property
    def reminder(self) -> str:
        """What a judge is told whose reply could not be read."""
        example = json.dumps(dict.fromkeys(self.scores, 3))
        return reminder(example, f"scores are whole numbers from {LOWEST} to {HIGHEST}")


RUBRICS = {
    "mlvu-sub-scene": Rubric("prompt_mlvu_sub_scene.txt", ("accuracy", "relevance")),
    "mlvu-summary": Rubric("prompt_mlvu_summary.txt", ("completeness", "reliability"), shows_question=False),
}
"""By the name that `extra_info.rubric` of a row has. In our words, after the two that MLVU's authors ask GPT-4 by
(evaluation/generation_evaluation of github.com/JUNJIE99/MLVU)."""


def read_scores(reply: str, names: Sequence[str]) -> dict[str, int]:
    """The scores of a reply that is one JSON object with these names and nothing else, fenced or not.

    Raises:
        JudgeError: it is another one.
    """
    text = without_reasoning(reply).strip()
    fenced = _FENCED.fullmatch(text)
    try:
        found = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        found = None
    if not (
        isinstance(found, dict)
        and found.keys() == set(names)
        and all(type(value) is int and LOWEST <= value <= HIGHEST for value in found.values())
    ):
        raise JudgeError(f"the judge's reply holds no readable scores ({', '.join(names)}): {reply[:200]!r}")
    return {name: found[name] for name in names}
