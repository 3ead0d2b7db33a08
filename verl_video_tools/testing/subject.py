"""What a property is, and the method under check with its example turns, rollouts and rewards."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from pkgutil import resolve_name
from typing import Any

import numpy as np

from verl_video_tools.core.errors import CallErrorCode
from verl_video_tools.core.types import (
    CallRecord,
    FrameRequest,
    ImagePart,
    Judge,
    Message,
    Method,
    ParsedTurn,
    PixelEnvelope,
    Sample,
    ToolContext,
    ToolPlan,
    Trajectory,
    VideoInfo,
)
from verl_video_tools.rollout.cost import planned_images
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.observation import shown_frames
from verl_video_tools.rollout.policy import AssistantTurn, ScriptedPolicy
from verl_video_tools.rollout.tokens import ModelTokens
from verl_video_tools.synthetic.seconds import WorldJudge
from verl_video_tools.testing.world import RankingRetriever, World, tool_model, without_file

# --------------------------------------------------------------------------------------------------------- properties


class Failed(Exception):
    """A property does not hold. The text says what is wrong, the value, and what to do."""


class NotApplicable(Exception):
    """The method has no part that the property is about. The text says which."""


def fail(what: str, got: Any, advice: str) -> Failed:
    """The error of a property that does not hold: what is wrong, the value, and what to do."""
    value = f"{type(got).__name__}({str(got)!r})" if isinstance(got, OSError) else repr(got)  # its repr has no path
    return Failed(f"{what}, got {value:.300}; {advice}")


@contextmanager
def no_error(what: str, advice: str) -> Iterator[None]:
    """Raises `Failed` for an error of the method's code, which `what` names."""
    try:
        yield
    except (Failed, NotApplicable):
        raise
    except Exception as error:
        raise fail(f"{what} raises", error, advice) from error


@dataclass(frozen=True)
class Property:
    """One thing that must hold for every method.

    Attributes:
        must: one sentence that says what must hold, and why.
        requires: properties that must hold before this one can be checked. One fault is then reported once.
        check: returns if the property holds, and otherwise raises `Failed` or `NotApplicable`.
    """

    name: str
    group: str
    must: str
    requires: tuple[str, ...]
    check: Callable[[Subject], None]


PROPERTIES: dict[str, Property] = {}
"""All properties by name, in the order in which they are checked. `testing.run` imports the modules that fill it."""


def holds(group: str, *, requires: tuple[str, ...] = ()) -> Callable[[Callable[[Subject], None]], Property]:
    """Register a function as the property of its name. Its docstring is the property's sentence."""

    def register(check: Callable[[Subject], None]) -> Property:
        name: str = getattr(check, "__name__", "")
        PROPERTIES[name] = Property(name, group, " ".join((inspect.getdoc(check) or "").split()), requires, check)
        return PROPERTIES[name]

    return register


# ------------------------------------------------------------------------------------------------------ example turns


def parse(method: Method, text: str) -> ParsedTurn | None:
    """The parsed turn; None if `parse` raises, which `parse_accepts_any_text` reports."""
    try:
        return method.parse(text)
    except Exception:
        return None


@dataclass(frozen=True)
class AnswerForm:
    """A turn that answers, split around its answer."""

    before: str
    after: str

    def turn(self, answer: str) -> str:
        return f"{self.before}{answer}{self.after}"


def answer_form(method: Method, turns: Iterable[str]) -> AnswerForm | None:
    """The form of the first turn whose answer can be replaced by any other."""
    for text in turns:
        parsed = parse(method, text)
        if parsed is None or not parsed.answer or parsed.answer not in text:
            continue
        before, _, after = text.rpartition(parsed.answer)
        form = AnswerForm(before, after)
        replaced = {answer: parse(method, form.turn(answer)) for answer in ("A", "C", "some words")}
        if all(turn is not None and turn.answer == answer for answer, turn in replaced.items()):
            return form
    return None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def variations(arguments: Mapping[str, Any], info: VideoInfo) -> Iterator[dict[str, Any]]:
    """The arguments with a number scaled or moved to an end of the video, and with two numbers exchanged."""
    ends = (0, info.num_frames - 1, info.num_frames, info.duration_seconds)
    numbers = [key for key, value in arguments.items() if is_number(value)]
    for key in numbers:
        value = arguments[key]
        for changed in (*(value * factor for factor in (0.25, 0.5, 0.99, 1.01, 1.5, 3, 1000)), *ends):
            yield {**arguments, key: type(value)(changed)}
    for first, second in pairwise(numbers):
        yield {**arguments, first: arguments[second], second: arguments[first]}
    for key, value in arguments.items():
        if isinstance(value, list) and value and all(map(is_number, value)):
            yield from ({**arguments, key: [*value[:-1], end]} for end in ends)
            yield {**arguments, key: value[::-1]}


@dataclass(frozen=True)
class PlannedCall:
    """One call of a tool: its plan, or the error that `plan` raised."""

    tool: str
    arguments: Mapping[str, Any]
    plan: ToolPlan | None = None
    error: Exception | None = None

    def __str__(self) -> str:
        return f"{self.tool}({dict(self.arguments)!r:.160})"

    @property
    def frames(self) -> FrameRequest | None:
        return None if self.plan is None else self.plan.frames


class _Listening(ScriptedPolicy):
    """Keeps the dialogue."""

    def __init__(self, turns: Iterable[str]) -> None:
        super().__init__(turns)
        self.dialogue: list[Message] = []

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn | None:
        self.dialogue += messages
        if (turn := await super().turn(messages)) is not None:
            self.dialogue.append(Message("assistant", (turn.text,)))
        return turn


@dataclass(frozen=True)
class Rollout:
    """One rollout of the method under check, with its reward."""

    subject: Subject
    kind: str
    sample: Sample
    turns: tuple[str, ...]

    @cached_property
    def trajectory(self) -> Trajectory:
        return self.subject.run(self.turns, self.sample)

    @cached_property
    def reward(self) -> dict[str, float]:
        return self.subject.score(self.trajectory, self.sample)


# ------------------------------------------------------------------------------------------------- the method checked


@dataclass(eq=False)
class Subject:
    """One config of a method, and the world in which it is checked.

    Args:
        turns: example turns in addition to the class attribute `check_examples` and the oracle's turns.
        model: a model's tokens, to check with its processor.
    """

    method: Method
    world: World
    turns: tuple[str, ...] = ()
    model: ModelTokens | None = None

    @cached_property
    def samples(self) -> list[Sample]:
        return self.world.samples(type(self.method))

    @property
    def sample(self) -> Sample:
        return self.samples[0]

    @property
    def info(self) -> VideoInfo:
        return self.world.info

    @cached_property
    def defaults(self) -> Method:
        """The method with its default fields."""
        cls: type[Any] = type(self.method)
        built: Method = cls()
        return built

    def initial_images(
        self, info: VideoInfo | None = None, envelope: PixelEnvelope | None = None
    ) -> tuple[ImagePart, ...]:
        """The method's initial frames of a video, without pixels."""
        info = info or self.info
        return planned_images(self.method.plan_initial_frames(info, self.sample, envelope or PixelEnvelope()), info)

    def prompt(self, sample: Sample | None = None) -> list[Message]:
        return self.method.prompt(sample or self.sample, self.info, self.initial_images())

    # -------------------------------------------------------------------------------------------------- example turns

    @cached_property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(self.method.tools(self.info))

    @cached_property
    def scripts(self) -> list[list[str]]:
        """The oracle's turns for each question; empty if the method has no oracle, or the oracle does not fit."""
        if self.method.oracle is None:
            return []
        try:
            oracle = resolve_name(self.method.oracle)(method=self.method)
            return [list(oracle.script(self.world.spec, question).turns) for question in self.world.questions]
        except Exception:  # a subclass may inherit an oracle that does not know its grammar
            return []

    @cached_property
    def example_turns(self) -> tuple[str, ...]:
        """The user's turns, then the author's, then the oracle's."""
        examples = getattr(self.method, "check_examples", ())
        authors = (examples,) if isinstance(examples, str) else tuple(examples)
        return (*self.turns, *authors, *chain.from_iterable(self.scripts))

    @cached_property
    def answer_form(self) -> AnswerForm | None:
        return answer_form(self.method, self.example_turns)

    @cached_property
    def example_calls(self) -> dict[str, tuple[str, CallRecord]]:
        """An example turn and the record of its executed call, for each tool that has one."""
        examples: dict[str, tuple[str, CallRecord]] = {}
        for turn in dict.fromkeys(self.example_turns):
            parsed = parse(self.method, turn)
            if parsed is None or parsed.answer is not None or all(call.name in examples for call in parsed.calls):
                continue
            for call in self.run([turn]).calls():
                # A plan with frames outside the video is an example too: `call_frames_are_valid` reports those frames.
                if call.ok or (call.error is not None and call.error.code == CallErrorCode.VIDEO_ERROR):
                    examples.setdefault(call.name, (turn, call))
        return examples

    def call_turn(self) -> str:
        """A turn whose call is executed.

        Raises:
            NotApplicable: the method has no tools, or there is no example of a call.
        """
        for turn, _ in self.example_calls.values():
            return turn
        raise NotApplicable("there is no example of a call" if self.tool_names else "the method has no tools")

    def answer_turn(self, answer: str) -> str:
        """A turn with this answer.

        Raises:
            NotApplicable: there is no example of an answer.
        """
        if self.answer_form is None:
            raise NotApplicable("there is no example of an answer")
        return self.answer_form.turn(answer)

    # ------------------------------------------------------------------------------------------------- planned calls

    def context(
        self, sample: Sample, info: VideoInfo, envelope: PixelEnvelope, *, with_services: bool = True
    ) -> ToolContext:
        """The context of a tool in the first turn, for a video with evenly spaced black frames."""

        async def index_at(seconds: float) -> int:
            return min(int(seconds * info.average_fps), info.num_frames - 1)

        async def times_of(indices: Sequence[int]) -> list[float]:
            return [index / info.average_fps for index in indices]

        async def black_frames(request: FrameRequest) -> tuple[ImagePart, ...]:
            records = [image.record for image in planned_images(request, info)]
            return tuple(ImagePart(record, np.zeros((record.height, record.width, 3), np.uint8)) for record in records)

        prompt = self.method.prompt(sample, info, self.initial_images(info, envelope))
        shown = shown_frames([message.content for message in prompt], turn=0)
        context = ToolContext(info, sample, envelope, index_at, previous_frames=shown, videos=(info,))
        if not with_services:
            return context
        return replace(
            context, retriever=RankingRetriever(), decode=black_frames, model=tool_model(), times_of=times_of
        )

    def plan(
        self,
        calls: Iterable[tuple[str, Mapping[str, Any]]],
        info: VideoInfo | None = None,
        envelope: PixelEnvelope | None = None,
        sample: Sample | None = None,
        *,
        with_services: bool = True,
    ) -> list[PlannedCall]:
        """Plan calls, given by tool and arguments, for a video whose file does not exist."""
        info = info or self.info
        tools = self.method.tools(info)
        context = self.context(
            without_file(sample or self.sample), info, envelope or PixelEnvelope(), with_services=with_services
        )

        async def plan_each() -> list[PlannedCall]:
            planned = []
            for name, arguments in calls:
                try:
                    plan = await tools[name].plan(copy.deepcopy(dict(arguments)), context)
                    planned.append(PlannedCall(name, arguments, plan))
                except Exception as error:
                    planned.append(PlannedCall(name, arguments, error=error))
            return planned

        return asyncio.run(plan_each())

    def example_arguments(self) -> list[tuple[str, dict[str, Any]]]:
        """Tool and arguments of each example call."""
        return [(name, dict(record.arguments)) for name, (_, record) in self.example_calls.items()]

    def accepted_calls(self, info: VideoInfo | None = None, envelope: PixelEnvelope | None = None) -> list[PlannedCall]:
        """The example calls and their variations, if the tools accept them."""
        calls = [
            (name, changed)
            for name, arguments in self.example_arguments()
            for changed in (arguments, *variations(arguments, info or self.info))
        ]
        return [call for call in self.plan(calls, info, envelope) if call.plan is not None]

    # ------------------------------------------------------------------------------------------------------- rollouts

    def run(self, turns: Sequence[str], sample: Sample | None = None) -> Trajectory:
        """One rollout on the world's video."""
        return asyncio.run(self._episode(sample or self.sample).run(ScriptedPolicy(turns)))

    def _episode(self, sample: Sample) -> Episode:
        return Episode(self.method, sample, retriever=RankingRetriever(), tool_model=tool_model())

    def dialogue(self, rollout: Rollout) -> list[Message]:
        """What the policy of a rollout is shown and writes."""
        policy = _Listening(rollout.turns)
        asyncio.run(self._episode(rollout.sample).run(policy))
        return policy.dialogue

    @cached_property
    def rollouts(self) -> list[Rollout]:
        """Good and bad rollouts of several kinds."""
        return [Rollout(self, kind, sample, tuple(turns)) for kind, sample, turns in self._plans()]

    def of_kind(self, *kinds: str) -> list[Rollout]:
        return [rollout for rollout in self.rollouts if rollout.kind in kinds]

    def _plans(self) -> Iterator[tuple[str, Sample, list[str]]]:
        form, sample = self.answer_form, self.sample
        calls = [turn for turn, _ in self.example_calls.values()]
        if form is not None:
            for number, question in enumerate(self.samples):
                script = self.scripts[number] if self.scripts else [*calls[:1], form.turn("A")]
                ending = answer_form(self.method, script[-1:]) or form
                yield "good", question, [*script[:-1], ending.turn(question.ground_truth)]
                yield "wrong", question, [*script[:-1], ending.turn("A" if question.ground_truth != "A" else "B")]
            yield "answer", sample, [form.turn(sample.ground_truth)]
            yield "every option", sample, [form.turn(", ".join("ABCD"[: len(sample.options)]))]
        yield "garbage", sample, ["I do not know what to say."]
        yield "empty", sample, [""]
        for call in calls[:1]:
            yield "silent", sample, [call]
            yield "endless", sample, [call] * (self.method.max_turns + 2)
        for call in calls:
            yield "each tool", sample, [call, *([] if form is None else [form.turn("A")])]

    # -------------------------------------------------------------------------------------------------------- rewards

    def score(self, trajectory: Trajectory, sample: Sample, judge: Judge | None = None) -> dict[str, float]:
        """The reward of a copy of a rollout. By default the judge knows the answers of the synthetic world."""
        return asyncio.run(self.method.score(copy.deepcopy(trajectory), sample, judge or WorldJudge()))
