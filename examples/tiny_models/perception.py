"""Practice conversations for pre-training: seeing, reading labels, copying, finding. Nothing of tools or of answering.

The base model must be able to see and to read, as the big models are that the papers start from, and must know nothing
of what fine-tuning and reinforcement learning are to teach: no actions, no thoughts in tags, no multiple choice.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from examples.tiny_models.corpus import FILLER_WORDS, NAMES
from examples.tiny_models.frame_pool import NOTHING, class_name
from verl_video_tools.synthetic.world import LABELS


@dataclass(frozen=True)
class Piece:
    """Part of a conversation in the chat template's layout: text, or a picture of class `picture`.

    `target`: this text is what the model learns to write.
    """

    text: str = ""
    picture: int | None = None
    target: bool = False


@dataclass(frozen=True)
class LabelStyle:
    """How frames are labelled in a message, and what a frame is called in what is written about it.

    Attributes:
        label: text before a picture, from `position` in the message, frame `number` and time in `seconds`.
        name: what a frame is called, from its `number` and `seconds`.
        separator: text between a picture and the next label.
    """

    label: str
    name: str
    separator: str = "\n"


FRAME_NUMBERS = LabelStyle("frame {number}: ", "frame {number}")
LABEL_STYLES: tuple[LabelStyle, ...] = (
    FRAME_NUMBERS,
    LabelStyle("<frame{position}_time{seconds:.2f}s>", "{seconds:.2f} s", separator=""),
    LabelStyle("{seconds:.1f}s ", "{seconds:.1f}s"),
    LabelStyle("[t={seconds:.1f}s]", "{seconds:.1f}s"),
)
"""The labels of FrameThinker and VideoBrain, of VideoZoomer, of LongVT, and of FrameMind."""

_FRAMES_PER_SECOND = (2, 5)
"""Rates of the videos of both synthetic worlds: they make times of frame numbers."""


@dataclass
class Frames:
    """Labelled frames of one turn: `numbers` ascend, `classes` say what each shows."""

    numbers: list[int]
    classes: list[int]
    style: LabelStyle = FRAME_NUMBERS
    fps: int = _FRAMES_PER_SECOND[0]
    shown: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.shown = [position for position, number in enumerate(self.classes) if number != NOTHING]

    def label(self, position: int) -> str:
        """What stands before a picture, for example `frame 171: `."""
        number = self.numbers[position]
        return self.style.label.format(position=position, number=number, seconds=number / self.fps)

    def name(self, position: int) -> str:
        """What a frame is called, for example `frame 171`."""
        number = self.numbers[position]
        return self.style.name.format(number=number, seconds=number / self.fps)

    def line(self, position: int) -> str:
        """The sentence for one frame, for example `frame 171 red circle`."""
        return f"{self.name(position)} {class_name(self.classes[position])}"


@dataclass(frozen=True)
class Stage:
    """One stage of the curriculum.

    Attributes:
        max_frames: most frames in one message.
        echo_share: share of turns that only repeat a text. Without them copying, which all else needs, comes very late.
        text_share: share of other turns without frames.
        dense_share: share of the turns with frames in which each frame is named right after it.
        table_share: share of the turns without frames that are tables, beside those that chance brings.
        styles: how frames are labelled; one is drawn for each turn.
        mention_share: share of the turns with frames in which other things are talked about before the frames. Without
            them the model comes to name what it has read rather than what it sees.
        tasks: what is asked about frames; `FRAME_TASKS` by default.
        text_tasks: what is asked about texts that are no tables; `TEXT_TASKS` by default.
    """

    max_frames: int
    echo_share: float
    text_share: float
    dense_share: float
    table_share: float = 0.0
    styles: tuple[LabelStyle, ...] = (FRAME_NUMBERS,)
    mention_share: float = 0.0
    tasks: tuple[FrameTask, ...] | None = None
    text_tasks: tuple[TextTask, ...] | None = None


TextMaterial = tuple[str, list[tuple[str, str]]]
"""A text, and questions about it with their answers."""

FrameTask = Callable[[random.Random, Frames], tuple[str, str]]
TextTask = Callable[[random.Random], TextMaterial]


def opening(rng: random.Random) -> list[Piece]:
    """What may stand before the first turn: nothing, or a system message of idle words."""
    if rng.random() < 0.4:
        return []
    return [Piece(f"<|im_start|>system\n{_filler(rng, rng.randrange(5, 70))}<|im_end|>\n")]


def turn(rng: random.Random, stage: Stage) -> list[Piece]:
    """A user message with frames, or with text, and a few questions about it, each answered."""
    chance = rng.random()
    if chance < stage.echo_share:
        return text_turn(rng, tasks=(_echo,))
    if chance < stage.echo_share + stage.text_share:
        tables = stage.table_share > 0.0 and rng.random() < stage.table_share
        return text_turn(rng, tasks=(_table, _lettered_table) if tables else stage.text_tasks)
    dense = rng.random() < stage.dense_share
    # Draws only where there is a choice, so that stages without one see the same random numbers as ever.
    style = rng.choice(stage.styles) if len(stage.styles) > 1 else stage.styles[0]
    mentions = stage.mention_share > 0.0 and rng.random() < stage.mention_share
    return frames_turn(rng, stage.max_frames, dense, stage.tasks, style, mentions)


def _reply(answer: str) -> list[Piece]:
    return [Piece("<|im_end|>\n<|im_start|>assistant\n"), Piece(answer + "<|im_end|>", target=True), Piece("\n")]


def _ask(question: str) -> list[Piece]:
    return [Piece(f"<|im_start|>user\n{question}")]


def frames_turn(
    rng: random.Random,
    max_frames: int,
    dense: bool,
    tasks: tuple[FrameTask, ...] | None = None,
    style: LabelStyle = FRAME_NUMBERS,
    mentions: bool = False,
) -> list[Piece]:
    """A message with labelled frames, then questions about them: up to four of `tasks`.

    Args:
        tasks: `FRAME_TASKS` by default.
        dense: each frame is named right after it.
        mentions: things, drawn without regard to what the frames show, are talked about before the frames.
    """
    frames = _random_frames(rng, max_frames)
    if style is not FRAME_NUMBERS:
        frames = Frames(frames.numbers, frames.classes, style, rng.choice(_FRAMES_PER_SECOND))
    tasks = tasks or FRAME_TASKS
    if len(tasks) > 1:
        tasks = tuple(rng.sample(tasks, rng.randrange(1, 5)))
    question, answer = tasks[0](rng, frames)
    before = [_filler(rng, rng.randrange(2, 20))] if rng.random() < 0.3 else []
    if mentions:
        before += rng.sample(LABELS, rng.randrange(2, 5))
    asked_first = rng.random() < 0.4
    if asked_first:
        before.append(question)
    pieces = _ask("".join(line + "\n" for line in before))
    for position, shown in enumerate(frames.classes):
        pieces.append(Piece((style.separator if position else "") + frames.label(position)))
        pieces.append(Piece(picture=shown))
        if dense:
            pieces.append(Piece(" " + class_name(shown), target=True))
    if not asked_first:
        pieces += [Piece("\n" + question)]
    pieces += _reply(answer)
    for task in tasks[1:]:
        question, answer = task(rng, frames)
        pieces += _ask(question) + _reply(answer)
    return pieces


def text_turn(rng: random.Random, tasks: tuple[TextTask, ...] | None = None) -> list[Piece]:
    """A message of text, then questions about it: one of `tasks`, or of all."""
    text, questions = rng.choice(tasks or TEXT_TASKS)(rng)
    pieces = _ask(text)
    for number, (question, answer) in enumerate(questions):
        pieces += [Piece("\n" + question)] if number == 0 else _ask(question)
        pieces += _reply(answer)
    return pieces


def _random_frames(rng: random.Random, max_frames: int) -> Frames:
    count = max_frames if rng.random() < 0.5 else rng.randrange(1, max_frames + 1)
    spacing = rng.choice((1, 2, 3, 5, 8, 12, 20, 40, 80))
    number = rng.randrange(0, 600)
    numbers, classes = [], []
    runs = rng.random() < 0.6  # things stay for some frames, as in a video; else every frame is drawn alone
    shown = NOTHING
    few = rng.sample(range(NOTHING), rng.randrange(1, 4))
    for _ in range(count):
        if not runs or rng.random() < 0.4:
            shown = rng.choice(few if rng.random() < 0.5 else range(NOTHING)) if rng.random() < 0.5 else NOTHING
        numbers.append(number)
        classes.append(shown)
        number += max(1, spacing + rng.randrange(-(spacing // 3) - 1, spacing // 3 + 2))
    return Frames(numbers, classes)


def _filler(rng: random.Random, num_words: int) -> str:
    words = []
    for _ in range(num_words):
        kind = rng.random()
        if kind < 0.12:
            words.append(str(rng.randrange(1000)))
        elif kind < 0.2:
            words.append(rng.choice(LABELS))
        else:
            words.append(rng.choice(FILLER_WORDS))
        if rng.random() < 0.1:
            words[-1] += rng.choice((".", ",", ":", "?", "\n"))
    return " ".join(words)


# --- tasks about frames: (question, answer) ---


def _list_shown(rng: random.Random, frames: Frames) -> tuple[str, str]:
    return "list the frames that show a thing", "\n".join(map(frames.line, frames.shown)) or "nothing"


def _list_all(rng: random.Random, frames: Frames) -> tuple[str, str]:
    return "list all frames", "\n".join(map(frames.line, range(len(frames.numbers))))


def _at_frame(rng: random.Random, frames: Frames) -> tuple[str, str]:
    positions = frames.shown if frames.shown and rng.random() < 0.7 else range(len(frames.numbers))
    position = rng.choice(list(positions))
    return f"what is in {frames.name(position)}", frames.line(position)


def _where_is(rng: random.Random, frames: Frames) -> tuple[str, str]:
    thing = frames.classes[rng.choice(frames.shown)] if frames.shown and rng.random() < 0.85 else rng.randrange(NOTHING)
    found = frames.line(frames.classes.index(thing)) if thing in frames.classes else "nothing"
    return f"find the {class_name(thing)}", found


def _first_shown(rng: random.Random, frames: Frames) -> tuple[str, str]:
    return "find the first thing", frames.line(frames.shown[0]) if frames.shown else "nothing"


def _last_shown(rng: random.Random, frames: Frames) -> tuple[str, str]:
    return "find the last thing", frames.line(frames.shown[-1]) if frames.shown else "nothing"


def _find_two(rng: random.Random, frames: Frames) -> tuple[str, str]:
    """Two things at once, as whoever wants to look between them has to; those that are not there are left out."""
    things = list(dict.fromkeys(frames.classes[position] for position in frames.shown))
    asked = rng.sample(things, 2) if len(things) > 1 else rng.sample(range(NOTHING), 2)
    found = [frames.line(frames.classes.index(thing)) for thing in asked if thing in things]
    return f"find the {class_name(asked[0])} and the {class_name(asked[1])}", ", ".join(found) or "nothing"


def _starts(frames: Frames) -> list[int]:
    """Position of the first of each run of frames that show the same thing."""
    return [
        position
        for position in frames.shown
        if position == 0 or frames.classes[position - 1] != frames.classes[position]
    ]


def _in_order(rng: random.Random, frames: Frames) -> tuple[str, str]:
    runs = [class_name(frames.classes[position]) for position in _starts(frames)]
    return "list the things in order", ", ".join(runs) or "nothing"


def _each_thing(rng: random.Random, frames: Frames) -> tuple[str, str]:
    return "list each thing once", ", ".join(map(frames.line, _starts(frames))) or "nothing"


def _read_numbers(rng: random.Random, frames: Frames) -> tuple[str, str]:
    return "list the frame numbers", " ".join(
        frames.name(position).removeprefix("frame ") for position in range(len(frames.numbers))
    )


FRAME_TASKS: tuple[FrameTask, ...] = (
    _list_shown, _list_shown, _list_shown, _list_all, _at_frame, _at_frame, _where_is, _where_is, _first_shown,
    _in_order, _read_numbers,
)  # fmt: skip

LATE_FRAME_TASKS: tuple[FrameTask, ...] = (*FRAME_TASKS, _each_thing, _each_thing, _each_thing)
"""With what takes longest to learn: several things in order, each with the frame where it begins."""

LAST_FRAME_TASKS: tuple[FrameTask, ...] = (
    _find_two, _find_two, _find_two, _find_two, _where_is, _where_is, _each_thing, _each_thing, _each_thing,
    _last_shown, _last_shown, _first_shown, _in_order, _in_order, _list_shown, _at_frame, _at_frame, _list_all,
)  # fmt: skip
"""What decides whether a second look finds its place and is understood."""

# --- tasks about text: (text, questions with answers) ---


_ECHO_WORDS = (*FILLER_WORDS, *(word for label in LABELS for word in label.split()))


def _value(rng: random.Random) -> str:
    kind = rng.randrange(5)
    if kind == 0:
        return str(rng.randrange(1000))
    if kind == 1:
        return f"{rng.randrange(4)}:{rng.randrange(60):02d}"
    if kind in (2, 3):
        low, high = sorted(rng.sample(range(800), 2))
        return f"{low} and {high}"
    return rng.choice(LABELS)


def _recall(rng: random.Random) -> TextMaterial:
    """Named values scattered in text: copying."""
    names = rng.sample(NAMES, rng.randrange(1, 5))
    values = [_value(rng) for _ in names]
    told = [f"the {name} is {value}." for name, value in zip(names, values, strict=True)]
    if rng.random() < 0.4:
        told.insert(rng.randrange(len(told) + 1), _filler(rng, rng.randrange(3, 12)))
    asked = rng.sample(range(len(names)), min(len(names), 3))
    return " ".join(told), [(f"the {names[number]} is", values[number]) for number in asked]


def _recall_spans(rng: random.Random) -> TextMaterial:
    """Spans of time or of frames: copying both ends, digit by digit."""
    names = rng.sample(NAMES, rng.randrange(1, 4))
    decimals = rng.choice((0, 1, 2))
    spans = [
        " and ".join(f"{half_seconds / 2:.{decimals}f}" for half_seconds in sorted(rng.sample(range(1600), 2)))
        for _ in names
    ]
    told = [f"the {name} is between {span}." for name, span in zip(names, spans, strict=True)]
    return " ".join(told), [(f"the {name} is", f"between {span}") for name, span in zip(names, spans, strict=True)]


def _table(rng: random.Random) -> TextMaterial:
    """A table of names and things (or small numbers), read from the thing and now and then from the name."""
    size = rng.randrange(2, 6)
    names = rng.sample(NAMES, size)
    things = rng.sample(LABELS, size) if rng.random() < 0.8 else [str(number) for number in rng.sample(range(10), size)]
    return _table_material(rng, names, things, min(size, 4))


def _lettered_table(rng: random.Random) -> TextMaterial:
    """The same with letters instead of names, and a question about every thing."""
    size = rng.randrange(2, 6)
    letters = rng.sample(string.ascii_uppercase, size)
    return _table_material(rng, letters, rng.sample(LABELS, size), size)


def _table_material(
    rng: random.Random, names: Sequence[str], things: Sequence[str], num_questions: int
) -> TextMaterial:
    questions = []
    for asked in rng.sample(range(len(names)), num_questions):
        if rng.random() < 0.2:
            questions.append((f"find the {names[asked]}", things[asked]))
        else:
            questions.append((f"find the {things[asked]}", f"{things[asked]}. {names[asked]}"))
    return "\n".join(f"- {name}. {thing}" for name, thing in zip(names, things, strict=True)), questions


def _echo(rng: random.Random) -> TextMaterial:
    """Repeating a text word for word: every token of the answer is practice in copying."""
    words = [
        str(rng.randrange(1000)) if rng.random() < 0.5 else rng.choice(_ECHO_WORDS) for _ in range(rng.randrange(3, 17))
    ]
    return " ".join(words), [("say it again", " ".join(words))]


def _count_on(rng: random.Random) -> TextMaterial:
    """Counting by ten: arithmetic that any base model brings along."""
    start = rng.randrange(960)
    return "numbers", [(f"count by ten from {start}", " ".join(str(start + 10 * step) for step in range(4)))]


TEXT_TASKS: tuple[TextTask, ...] = (_echo, _recall, _recall, _table, _table, _table, _count_on)

LAST_TEXT_TASKS: tuple[TextTask, ...] = (_recall_spans, _recall_spans, _recall, _table, _lettered_table)
