"""Answers as models write them, and what the original functions of lmms-eval read in them.

`extractor_readings.json` holds their readings. It was made by running the originals (lmms-eval at 75571cfe; what is
named 2025, at the parent of 9ca4445d) on the texts of this module, outside the repository, which
has none of their code.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from dataclasses import dataclass

NUM_OUTPUTS = 300

_OPTION_SETS = (
    ("A red bicycle", "The woman in blue", "Three cups on a shelf", "Before the bell rings", "A dog by the door"),
    ("Paris", "Berlin", "Cairo", "Delhi", "Accra"),
    ("To open the drawer", "to fetch a ladder", "To call a friend", "to rest for a while", "To clean the board"),
    ("2", "3", "5", "8", "12"),
    ("He falls asleep.", "He burns the cake.", "He breaks a chair.", "He drops the cup.", "He closes a book."),
)
_CHOICE_TEMPLATES = (
    "{X}",
    "{x}",
    "{X}.",
    "({X})",
    "({X}) {text}",
    "{X}. {text}",
    "{X}: {text}",
    "{X}) {text}",
    "{text}",
    "**{X}**",
    "The answer is {X}.",
    "The correct answer is ({X}).",
    "The best answer is: {X}",
    "Answer: {X}",
    "answer is {x}",
    *(
        "The best option is {X}",
        "Best option: {X}",
        "Option {X}",
        "I choose {X} because of the light.",
        "My choice is {X}",
    ),
    "The correct option is {X}. {text}",
    "I think it is {X}, not {Y}.",
    "{Y} is wrong, so {X}",
    "So, {X}?",
    *(
        "\\boxed{{{X}}}",
        "<answer>{X}</answer>",
        "Final Answer: {X}",
        "{X}\n\nThe video shows {text}.",
        "[{X}]",
        "'{X}'",
    ),
    "Based on the video, the man says that {text} and nothing else happens.",
    "It might be {Y} or {X}.",
    "None.",
    "",
    *(
        "I cannot tell from the frames.",
        "Between {Y} and {X}, the frames favour {X}.",
        "Both ({Y}) and ({X}) fit.",
        "...",
    ),
    *(
        "First I looked at frame 12. A man enters. Then {text} is seen, which leaves {X}.",
        "{X},",
        "{X} - {text}",
        "_{X}_",
    ),
    *(
        "The answer is {X} because A dog does not appear.",
        "The second one.",
        "答案是{X}",
        "정답은 {X}입니다",
        "選択肢{X}",
    ),
    *(
        "{X}. {text}\n{Y}. {other}",
        "({Y}) is shown first, then ({X}).",
        "Therefore, the answer is {X}) {text}.",
        "{X}!",
    ),
    *(
        "As shown at 00:12, Ben opens it. I select {X}",
        "{text} ({X})",
        '"{X}"',
        "The person, a friend, says {text}.",
        " {X} ",
    ),
    "- {Y}: no\n- {X}: yes",
    "Let me compare {Y}. {other} with {X}. {text}: {X} it is.",
    "1,000 people chose {X}",
    "A: {text}, B: {other}, the answer: {X}",
    "{X} is correct.",
    "e.g. {x})",
    "Correct: {X}/{Y}",
    "{X}{Y}",
    "{X}\n",
    *(
        "Only {text} can be seen in the last part of the clip, I am sure of that",
        "Definitely {other} or {text} in this clip",
    ),
    *(
        "The answer: {X}",
        "Dinner is over. {X}",
        "({x}) {text}",
        "{x}. {text}",
        "Yes, {text}.",
        "Answer ({X}",
        "{X}; {Y}",
    ),
)


@dataclass(frozen=True)
class Output:
    """An answer, and the options of its question."""

    answer: str
    options: Sequence[str]


def choice_outputs(num_options: int) -> list[Output]:
    """Multiple-choice questions with so many options."""
    rng = random.Random(num_options)
    letters = string.ascii_uppercase[:num_options]
    outputs = []
    for number in range(NUM_OUTPUTS):
        options = rng.choice(_OPTION_SETS)[:num_options]
        chosen, other, _ = rng.sample(letters, 3)
        texts = {"text": options[letters.index(chosen)], "other": options[letters.index(other)]}
        template = _CHOICE_TEMPLATES[number % len(_CHOICE_TEMPLATES)]
        answer = template.format(X=chosen, x=chosen.lower(), Y=other, **texts)
        rng.random()  # keeps the outputs those that the originals have read
        outputs.append(Output(answer, options))
    return outputs
