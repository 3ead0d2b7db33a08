"""Answers as models write them, and what the original functions of lmms-eval read in them.

`extractor_readings.json` holds their readings. It was made by running the originals (lmms-eval at 75571cfe; what is
named 2025, at the parent of 9ca4445d) on the texts of this module, outside the repository, which
has none of their code.
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass

from verl_video_tools.core.types import Sample

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
_TIME_TEMPLATES = (
    "The event happens in the {s} - {e} seconds.",
    "From {s} to {e} seconds.",
    "[{s}, {e}]",
    "{s}-{e}",
    "{s} - {e}",
    "Start time: {s} seconds\nEnd time: {e} seconds",
    "Start time: {s} seconds, end time: {e} seconds.",
    "{e} - {s}",
    *(
        "It starts at {s}s and ends at {e}s.",
        "starts at {cs} and ends at {ce}",
        "The clip happens between {cs} and {ce}.",
    ),
    "The event starts at {cs} to {ce}.",
    "{cs} - {ce}",
    "{hs} - {he}",
    "From {hs} to {he}",
    "between {s} and {e} s",
    *(
        "From {s} to {e} seconds; the clip lasts from 0 to 30.",
        "I cannot find it.",
        "",
        "At {s} seconds.",
        "{s}s - {e}s",
    ),
    "Starting time: {s}\nEnding time: {e}\n",
    "The clip lasts 30 seconds.\nIt happens at {s} - {e}.",
    "{s} \u2013 {e} s",
    *(
        "<answer>[{s}, {e}]</answer>",
        "The given query happens in {e} - {s} seconds.",
        "First at 0 to 1! It ends {s} - {e}",
    ),
    "start: {s}, end: {e}",
    "It begins at {s} seconds.\nIt is over at {e} seconds.",
    "**{s}** to **{e}**",
    *(
        "A specific example is : 20.8 - 30.0 seconds. It happens in {s} - {e}.",
        "{cs}\u2013{ce} in the video",
        "{hs} to {ce}",
    ),
    *(
        "starts at {hs} and ends at {he}",
        "The person opens the door at {s} and closes it at {e}.",
        "{s} to {e}.5 seconds",
    ),
)
_TRUTHS = (
    "5",
    "12.5",
    "1,200",
    "-3.25",
    "1.5e-3",
    "Bach",
    "photosynthesis",
    "C",
    "x = 4",
    "['2', 'two'",
    "0.333",
    "7%",
)
_OPEN_TEMPLATES = (
    *(
        "{t}",
        "{t}.",
        "The answer is {t}",
        "The answer is {t}.",
        "so we get {t}",
        "Therefore the value is {t} metres.",
        "",
    ),
    *(
        "We add 3 and 4.\nThe result is {t}",
        "x = {t}",
        "It equals {t} or {w}",
        "It is not {t} but {w}",
        "{w}",
        "about {t}",
    ),
    *(
        "The number of cars is {w}.\nThe total is {t}",
        "I don't know.",
        "\\boxed{{{t}}}",
        "Answer: {t}",
        "the final answer ",
    ),
    *(
        "First, {w} is known. Then {t}",
        "{t} is what the lecture calls it",
        "Total = {w} + 1 = {t}",
        "is {w}, so {t} ",
        "So ",
    ),
    *(
        "The answer is: {t}\n\nBecause it is so",
        "answer \nresult {t}",
        "{t}, {w}",
        "There are {t} of them",
        "final ,\n{w}",
    ),
)


@dataclass(frozen=True)
class Output:
    """An answer, and the question that it belongs to."""

    answer: str
    sample: Sample


def choice_outputs(num_options: int) -> list[Output]:
    """Multiple-choice questions with so many options."""
    rng = random.Random(num_options)
    letters = string.ascii_uppercase[:num_options]
    outputs = []
    for number in range(NUM_OUTPUTS):
        options = rng.choice(_OPTION_SETS)[:num_options]
        chosen, other, truth = rng.sample(letters, 3)
        texts = {"text": options[letters.index(chosen)], "other": options[letters.index(other)]}
        template = _CHOICE_TEMPLATES[number % len(_CHOICE_TEMPLATES)]
        answer = template.format(X=chosen, x=chosen.lower(), Y=other, **texts)
        truth = chosen if rng.random() < 0.7 else truth
        index = {"index": str(number)}
        outputs.append(Output(answer, Sample("What is seen?", truth, "v.mp4", "mc", options, extra_info=index)))
    return outputs


def time_outputs() -> list[Output]:
    """Questions whose answer is a segment."""
    rng = random.Random(0)
    outputs = []
    for number in range(NUM_OUTPUTS):
        start = rng.randrange(0, 400) / 10
        end = start + rng.randrange(1, 300) / 10
        words = {"s": f"{start:g}", "e": f"{end:g}"}
        words |= {"cs": _clock(start), "ce": _clock(end), "hs": f"00:{_clock(start)}", "he": f"00:{_clock(end)}"}
        shift = rng.choice((0.0, 0.5, 3.0, 12.0))
        truth = f"[{start + shift:g}, {end + shift:g}]"
        template = _TIME_TEMPLATES[number % len(_TIME_TEMPLATES)]
        outputs.append(Output(template.format(**words), Sample("When?", truth, "v.mp4", "segment")))
    return outputs


def open_outputs() -> list[Output]:
    """Open questions."""
    rng = random.Random(1)
    outputs = []
    for number in range(NUM_OUTPUTS):
        truth, wrong = rng.sample(_TRUTHS, 2)
        answer = _OPEN_TEMPLATES[number % len(_OPEN_TEMPLATES)].format(t=truth, w=wrong)
        outputs.append(Output(answer, Sample("What is it?", truth, "v.mp4", "open")))
    return outputs


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
