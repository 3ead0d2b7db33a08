"""What the oracle policies of all methods share: scripts, how they err, and what they conclude from frames.

An oracle writes what a competent policy would write for a question of the synthetic world. It concludes only from
frames that it was shown, as `label_at` gives them, so its thoughts are true; where it saw nothing that answers the
question it guesses. Texts are short and regular, because a model of a million parameters learns from them.
"""

from __future__ import annotations

import json
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypedDict, get_type_hints

from omegaconf import OmegaConf

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.prompts import file_beside
from verl_video_tools.core.types import Method, PixelEnvelope, Sample, VideoInfo
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.world import VideoSpec, frames_at, label_at


@dataclass(frozen=True)
class Script:
    """The assistant's turns for one question, and the template that they follow."""

    template: str
    turns: tuple[str, ...]


Places = Sequence[tuple[Any, Any]]
"""Parts of a video that tools show, from start to end, in the unit of the method: frame numbers or seconds."""

Plan = tuple[str, Places]
"""A template, and the parts of the video that its calls show."""


class Oracle(Protocol):
    """Writes all turns of a rollout before it starts."""

    def script(self, spec: VideoSpec, question: Question) -> Script: ...


class Habits(TypedDict, total=False):
    """How a `ScriptedOracle` errs and answers: its fields with these names."""

    imperfection: float
    skip_rate: float
    answers_in_words: bool


@dataclass(frozen=True, kw_only=True)
class ScriptedOracle:
    """Base of the oracles of all methods. The same seed and question give the same script.

    Attributes:
        imperfection: probability that the oracle requests frames of a wrong place, or none, and guesses.
        skip_rate: share of these imperfect scripts that call no tool.
        answers_in_words: answer with the text of an option instead of its letter.
    """

    takes_open_questions: ClassVar[bool] = False
    """The oracle answers questions without options, too, in words."""
    answer_turn: ClassVar[str] = "<think>{thought}. {answer}</think><answer>{answer}</answer>"
    """The last turn in the method's grammar."""
    frame_name: ClassVar[str] = "frame {frame}"
    """How thoughts name a frame: a format with its number `frame` or its time `seconds`."""

    seed: int = 0
    imperfection: float = 0.0
    skip_rate: float = 0.5
    answers_in_words: bool = False

    def __post_init__(self) -> None:
        shares = [name for name, kind in get_type_hints(type(self)).items() if kind is float]
        for name in shares:
            require(self, name, 0.0 <= getattr(self, name) <= 1.0, "between 0 and 1")

    def _rng(self, spec: VideoSpec, question: Question) -> random.Random:
        return random.Random(f"{self.seed}/{spec.seed}/{question.text}")

    def _name(self, spec: VideoSpec, frame: int) -> str:
        return self.frame_name.format(frame=frame, seconds=frame / spec.fps)

    def _conclusion(self, rng: random.Random, spec: VideoSpec, question: Question, shown: Sequence[int]) -> str:
        """The turn that answers by the frames shown."""
        thought, letter = conclude(rng, spec, question, shown, partial(self._name, spec))
        return self.answer_turn.format(thought=thought, answer=self._answer_to(question, letter))

    def _answer_to(self, question: Question, letter: str) -> str:
        return question.options[letter] if self.answers_in_words else letter


class PlanningOracle(ScriptedOracle, ABC):
    """An oracle that chooses the parts of the video before it calls a tool."""

    def script(self, spec: VideoSpec, question: Question) -> Script:
        """The turns that call tools, and then the turn that answers from the frames that they show.

        Raises:
            UsageError: the video is too short for a call at a wrong place.
        """
        rng = self._rng(spec, question)
        choose = self._careless_plan if rng.random() < self.imperfection else self._plan
        template, places = choose(rng, spec, question)
        turns, shown = self._calls(spec, question, template, places)
        return Script(template, (*remind(question, turns), self._conclusion(rng, spec, question, shown)))

    @abstractmethod
    def _plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        """What a competent policy does."""

    @abstractmethod
    def _careless_plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        """What the oracle does where it errs."""

    @abstractmethod
    def _calls(self, spec: VideoSpec, question: Question, template: str, places: Places) -> tuple[list[str], list[int]]:
        """The turns that call, and the numbers of the frames that the answer is concluded from."""


def frames_around(frames: Sequence[int], segment: tuple[int, int]) -> tuple[int, int]:
    """The nearest frame numbers on both sides of a segment, from an ascending list; the last number if none follows the
    segment."""
    start, end = segment
    before = max(frame for frame in frames if frame <= start)
    after = min((frame for frame in frames if frame >= end), default=frames[-1])
    return before, after


def native_call(thought: str, name: str, arguments: Mapping[str, Any]) -> str:
    """A turn that makes a native tool call."""
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<think>{thought}</think>\n<tool_call>\n{call}\n</tool_call>"


def initial_frame_numbers(method: Method, spec: VideoSpec) -> list[int]:
    """Numbers of the method's initial frames."""
    request = method.plan_initial_frames(video_info(spec), Sample("", "", "", "mc"), PixelEnvelope())
    numbers = request.indices
    if request.seconds is not None:
        numbers = tuple(frames_at(spec, request.seconds, request.rounding))
    return list(dict.fromkeys(numbers or ())) if request.unique else list(numbers or ())


def video_info(spec: VideoSpec) -> VideoInfo:
    """Facts of a video of the synthetic world."""
    return VideoInfo(spec.duration_seconds, spec.num_frames, float(spec.fps), spec.side_pixels, spec.side_pixels)


def conclude(
    rng: random.Random, spec: VideoSpec, question: Question, shown: Sequence[int], name: Callable[[int], str]
) -> tuple[str, str]:
    """What an oracle says about the frames that it was shown, and the letter that it answers.

    Args:
        shown: frame numbers. The oracle uses only what these frames show.
        name: how the oracle names a frame, from its number.
    """
    letters = {text: letter for letter, text in question.options.items()}
    runs = runs_of_labels(spec, shown)
    if question.kind == "count":
        counted = [(frame, label) for frame, label in runs if label in question.text.splitlines()[0]]
        if shown and str(len(counted)) in letters:
            return f"{listed(counted, name)}. {len(counted)}", letters[str(len(counted))]
    elif question.kind == "order":
        # Begins with what is asked for, as `remind` has it, and names it again beside the answer. Guesses do as well: a
        # small model learns from every row to copy it.
        which = requested_place(question)
        label = runs[0 if which == "first" else -1][1] if runs else ""
        if label not in letters:
            label = question.options[rng.choice(list(question.options))]
        return f"{which} {listed(runs, name)}. {which} {label}", letters[label]
    elif question.kind == "between_things":  # the call may show the clues as well, which are no options
        if options := [label for _, label in runs if label in letters]:
            return listed(runs, name), letters[options[0]]
    elif runs and runs[0][1] in letters:
        return listed(runs[:1], name), letters[runs[0][1]]
    return listed(runs, name), rng.choice(list(question.options))


def requested_place(question: Question) -> str:
    """The position for which a question about an order asks: "first" or "last"."""
    return "first" if " first " in question.text else "last"


def initial_frames_tell(method: Method, spec: VideoSpec, question: Question) -> bool:
    """Whether the initial frames answer a question about one frame: the nearest initial frame shows the same as this
    frame."""
    if question.kind != "direct" or not (shown := initial_frame_numbers(method, spec)):
        return False
    frame = question.evidence[0][0]
    return label_at(spec, min(shown, key=lambda one: abs(one - frame))) == label_at(spec, frame)


def remind(question: Question, turns: Sequence[str]) -> list[str]:
    """The turns that call tools. If the question asks for the first or the last of several things, each thought says
    for which.

    A small model forgets it while it reads frames, unless it wrote it down.
    """
    if question.kind != "order":
        return list(turns)
    return [re.sub(r"^(<\w+>)", rf"\1{requested_place(question)} ", turn) for turn in turns]


def runs_of_labels(spec: VideoSpec, shown: Sequence[int]) -> list[tuple[int, str]]:
    """(frame, label) of the first frame of each run of frames that show the same thing."""
    labels = [label_at(spec, frame) for frame in shown]
    starts = [True, *(before != after for before, after in pairwise(labels))]
    return [
        (frame, label)
        for frame, label, start in zip(shown, labels, starts, strict=False)
        if start and label is not None
    ]


def listed(runs: Sequence[tuple[int, str]], name: Callable[[int], str]) -> str:
    """The content of the runs in words; `name` makes the name of a frame."""
    return ", ".join(f"{name(frame)} {label}" for frame, label in runs) or "nothing"


# ------------------------------------------------------------------------------------------------- settings of a method


PROMPT_FILE = "prompt_synthetic.txt"


def synthetic_fields(method_class: type[Method], prompts_dir: Path | None = None) -> dict[str, Any]:
    """Fields of a packaged method's config, as its group in `video_tools/synthetic` sets them.

    Args:
        prompts_dir: folder with the prompts that `vvt demo` has written; None: the packaged prompt.
    """
    group = files("verl_video_tools.config") / "video_tools" / "synthetic" / f"{method_class.name}.yaml"
    fields: Any = OmegaConf.to_container(OmegaConf.create(group.read_text(encoding="utf-8")))
    packaged = Path(str(file_beside(method_class, PROMPT_FILE)))
    prompt = packaged if prompts_dir is None else prompts_dir / f"{method_class.name}.txt"
    return {**fields, "prompt_file": str(prompt)}


def write_prompt(method_class: type[Method], prompts_dir: Path) -> None:
    """Write the method's short system prompt for a tiny model to ``<prompts_dir>/<name>.txt``.

    Raises:
        UsageError: the method has no such prompt.
    """
    prompt = file_beside(method_class, PROMPT_FILE)
    if not prompt.is_file():
        raise UsageError(f"{method_class.name} has no prompt for a tiny model: put one into {prompt}")
    prompts_dir.mkdir(parents=True, exist_ok=True)
    (prompts_dir / f"{method_class.name}.txt").write_bytes(prompt.read_bytes())
