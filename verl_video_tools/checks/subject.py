"""A method under check: its examples, rollouts and scores, each made once and when first asked for."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from random import Random
from typing import Any

from verl_video_tools.checks import candidates, examples
from verl_video_tools.checks.examples import Answering, Calls
from verl_video_tools.checks.outcome import NotApplicable
from verl_video_tools.checks.texts import hostile_texts, spoilt
from verl_video_tools.checks.world import RankingRetriever, World
from verl_video_tools.core.types import (
    ImagePart,
    Judge,
    Message,
    Method,
    PixelEnvelope,
    Sample,
    ToolContext,
    Trajectory,
    VideoInfo,
)
from verl_video_tools.rollout.cost import planned_images
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.history import History
from verl_video_tools.rollout.policy import BudgetCheck, ScriptedPolicy
from verl_video_tools.rollout.tokens import ModelTokens
from verl_video_tools.synthetic.seconds import WorldJudge

_MAX_CANDIDATES = 120
_NUM_SPOILT = 6
_NUM_HOSTILE = 1500


@dataclass(frozen=True)
class Rollout:
    """One rollout of the method under check, and what it was made of."""

    kind: str
    sample: Sample
    turns: tuple[str, ...]
    trajectory: Trajectory


@dataclass
class Subject:
    """One config of a method, and the world that it is checked in.

    Args:
        turns: of the method's author, beside those of `check_examples`.
        model: a model's tokens, where its processor is at hand.
    """

    method: Method
    world: World
    turns: tuple[str, ...] = ()
    model: ModelTokens | None = None
    _scores: dict[int, dict[str, float]] = field(default_factory=dict)

    # -------------------------------------------------------------------------------------------------------- questions

    @cached_property
    def samples(self) -> list[Sample]:
        return self.world.samples(type(self.method))

    @property
    def sample(self) -> Sample:
        return self.samples[0]

    @cached_property
    def defaults(self) -> Method:
        """The method with its defaults."""
        cls: type[Any] = type(self.method)
        built: Method = cls()
        return built

    @property
    def info(self) -> VideoInfo:
        return self.world.info

    def planned(self, info: VideoInfo | None = None, envelope: PixelEnvelope | None = None) -> tuple[ImagePart, ...]:
        """The method's initial frames of a video, without pixels."""
        info = info or self.info
        request = self.method.plan_initial_frames(info, self.sample, envelope or PixelEnvelope())
        return planned_images(request, info)

    def prompt(self, sample: Sample | None = None) -> list[Message]:
        return self.method.prompt(sample or self.sample, self.info, self.planned())

    def context(
        self, sample: Sample, info: VideoInfo | None = None, envelope: PixelEnvelope | None = None
    ) -> ToolContext:
        """What a tool may know in the first turn, of a video that is not opened: its frames are evenly spaced."""
        known = info or self.info

        async def index_at(seconds: float) -> int:
            return min(int(seconds * known.average_fps), known.num_frames - 1)

        history = History()
        prompt = self.method.prompt(sample, known, self.planned(known, envelope))
        history.show([message.content for message in prompt])
        return ToolContext(
            *(known, sample, envelope or PixelEnvelope(), index_at, RankingRetriever()),
            shown=history.shown,
            videos=(known,),
        )

    # --------------------------------------------------------------------------------------------------------- examples

    @cached_property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(self.method.tools(self.info))

    @cached_property
    def scripts(self) -> list[list[str]]:
        """The oracle's turns for each question, where there is an oracle that has any."""
        world = self.world
        made = [candidates.oracle_script(self.method, world.spec, question) for question in world.questions]
        return [script for script in made if script] if all(made) else []

    @cached_property
    def given(self) -> tuple[str, ...]:
        """Turns of the author, then the oracle's."""
        return (*self.turns, *candidates.author_turns(self.method), *chain.from_iterable(self.scripts))

    @cached_property
    def answering(self) -> Answering | None:
        return examples.find_answering(
            self.method, chain(self.given, candidates.guessed_answers(self.method, self._system_prompt()))
        )

    @cached_property
    def calls(self) -> Calls:
        names = self.tool_names
        if not names:
            return Calls()
        guessed = candidates.guessed_calls(self.method, self.info, self._system_prompt())
        tried = (text for text, _ in zip(chain(self.given, guessed), range(_MAX_CANDIDATES), strict=False))
        return examples.find_calls(self.method, tried, names, self.run)

    @property
    def found_turns(self) -> list[str]:
        """A turn with a valid call of each tool, and one that answers; those of them that were found."""
        turns = [turn for found in self.calls.turns.values() for turn in found[:1]]
        return [*turns, *([] if self.answering is None else [self.answering.turn("B")])]

    @cached_property
    def hostile_texts(self) -> list[str]:
        """What a policy may write, spoilt turns among it: the same for every property."""
        return list(hostile_texts([*self.given, *self.found_turns], _NUM_HOSTILE))

    @cached_property
    def refused_turn(self) -> str | None:
        valid = self.calls.any_turn()
        return None if valid is None else examples.find_refused(self.method, valid, self.run)

    def call_turn(self) -> str:
        """A turn whose call is carried out.

        Raises:
            NotApplicable: there is none.
        """
        turn = self.calls.any_turn()
        if turn is None:
            raise NotApplicable("the method has no tools" if not self.tool_names else "no valid call was found")
        return turn

    def answer_turn(self, answer: str) -> str:
        """A turn that gives this answer.

        Raises:
            NotApplicable: nothing that answers was found.
        """
        if self.answering is None:
            raise NotApplicable("no turn that answers was found")
        return self.answering.turn(answer)

    def _system_prompt(self) -> list[Message]:
        try:
            return self.prompt()
        except Exception:  # `prompt_of_any_video` tells of it
            return []

    # --------------------------------------------------------------------------------------------------------- rollouts

    def run(
        self,
        turns: Sequence[str],
        sample: Sample | None = None,
        method: Method | None = None,
        budget: BudgetCheck | None = None,
    ) -> Trajectory:
        """One rollout on the world's video."""
        episode = Episode(method or self.method, sample or self.sample, budget=budget, retriever=RankingRetriever())
        return asyncio.run(episode.run(ScriptedPolicy(turns)))

    @cached_property
    def rollouts(self) -> list[Rollout]:
        """Good and bad rollouts of many kinds."""
        return [Rollout(kind, sample, tuple(turns), self.run(turns, sample)) for kind, sample, turns in self._plans()]

    def of_kind(self, *kinds: str) -> list[Rollout]:
        return [rollout for rollout in self.rollouts if rollout.kind in kinds]

    def good_script(self, number: int) -> list[str] | None:
        """Turns that earn what can be earned on a question: the oracle's, or a call and the right answer."""
        if self.scripts:
            return self.scripts[number]
        if self.answering is None:
            return None
        call = self.calls.any_turn() if self.method.max_turns > 1 else None
        return [*([] if call is None else [call]), self.answering.turn(self.samples[number].ground_truth)]

    def _plans(self) -> Iterator[tuple[str, Sample, list[str]]]:
        answering, call, sample = self.answering, self.calls.any_turn(), self.sample
        for number, asked in enumerate(self.samples):
            script = self.good_script(number)
            if script is not None and answering is not None:  # an oracle that sees nothing guesses
                form = examples.find_answering(self.method, script[-1:]) or answering
                yield "good", asked, [*script[:-1], form.turn(asked.ground_truth)]
                yield "wrong", asked, [*script[:-1], form.turn("A" if asked.ground_truth != "A" else "B")]
                if self.scripts:
                    yield "oracle", asked, script
        if answering is not None:
            yield "answer", sample, [answering.turn(sample.ground_truth)]
            yield "every option", sample, [answering.turn(", ".join("ABCD"[: len(sample.options)]))]
        for kind, text in (("garbage", "I do not know what to say."), ("empty", "")):
            yield kind, sample, [text]
        if call is None:
            return
        yield "silent", sample, [call]
        yield "endless", sample, [call] * (self.method.max_turns + 2)
        for turns in self.calls.turns.values():
            yield "each tool", sample, [turns[0], *([] if answering is None else [answering.turn("A")])]
        if self.refused_turn is not None:
            ending = [] if answering is None else [answering.turn(sample.ground_truth)]
            yield "refused", sample, [self.refused_turn, *ending]
        random = Random(7)
        for _ in range(_NUM_SPOILT):
            yield "spoilt", sample, [spoilt(random, call, "".join(self.given)), spoilt(random, call), *self.given[-1:]]

    # ----------------------------------------------------------------------------------------------------------- reward

    def score(
        self, trajectory: Trajectory, sample: Sample, judge: Judge | None = None, method: Method | None = None
    ) -> dict[str, float]:
        """The reward of a rollout, asked anew and on a copy; the judge knows the synthetic world."""
        scored = (method or self.method).score(copy.deepcopy(trajectory), sample, judge or WorldJudge())
        return self.wait(scored)

    def reward(self, rollout: Rollout) -> Mapping[str, float]:
        """The reward of one of the `rollouts`, asked once."""
        key = id(rollout)
        if key not in self._scores:
            self._scores[key] = self.score(rollout.trajectory, rollout.sample)
        return self._scores[key]

    def wait(self, awaitable: Any) -> Any:
        """The result of a coroutine."""
        return asyncio.run(awaitable)
