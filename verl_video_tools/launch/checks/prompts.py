"""What a row's prompt takes of a run's limits, with the frames that its video really has, and whether they decode.

A prompt is made by the `Episode` of a rollout, whose budget is asked before anything is decoded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from verl_video_tools.core.errors import VideoToolsError
from verl_video_tools.core.types import Content, Message, Method, Sample, StopReason, content_images
from verl_video_tools.launch.checks.report import one_line
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.sequences import TokenBudget, rollout_tokens
from verl_video_tools.verl_plugin.planned_run import RunModel

Item = TypeVar("Item")
Result = TypeVar("Result")

_AT_ONCE = 8
"""Rows under way: their frames are held in memory, and a long video has hundreds."""


@dataclass(frozen=True)
class Prompt:
    """The most expensive prompt of a row's group.

    Attributes:
        label: of the row.
        method: whose prompt it is, as that rollout configures it.
        problem: why the run would leave the row out; empty where it fits.
    """

    label: str
    method: Method
    sample: Sample
    tokens: int = 0
    images: int = 0
    problem: str = ""


class _FirstFrames:
    """A retriever for selectors of initial frames: which frames they are changes no length."""

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        return list(candidates[:num_frames])


class _Probe:
    """A budget that notes what a prompt takes, and ends the rollout before frames are decoded unless they shall be."""

    def __init__(self, budget: TokenBudget, decode: bool) -> None:
        self._budget = budget
        self._decode = decode
        self.tokens = self.images = 0
        self.verdict: StopReason | None = None

    def refuses_prompt(self, messages: Sequence[Message]) -> StopReason | None:
        self.tokens = self._budget.tokens.counter.prompt(messages)
        self.images = sum(len(content_images(message.content)) for message in messages)
        self.verdict = self._budget.refuses_prompt(messages)
        return self.verdict if self._decode or self.verdict else StopReason.PROMPT_BUDGET

    def refuses_observation(self, content: Content) -> StopReason | None:
        return self._budget.refuses_observation(content)


@dataclass(frozen=True)
class PromptMeter:
    """Measures the prompts of rows as a run with these limits would make them.

    Attributes:
        max_images: of a sequence; None: the engine has no limit.
    """

    model: RunModel
    prompt_length: int
    response_length: int
    max_images: int | None

    async def measure(self, label: str, sample: Sample, group: Sequence[Method]) -> Prompt:
        """The most expensive prompt of a group; nothing is decoded."""
        members = list({id(method): method for method in group}.values())
        prompts = [await self._prompt(label, sample, member) for member in members]
        failed = [prompt for prompt in prompts if prompt.problem]
        return failed[0] if failed else max(prompts, key=lambda prompt: prompt.tokens)

    async def decode(self, prompt: Prompt) -> str:
        """Decode the frames of a prompt; what is wrong."""
        probe, episode = self._episode(prompt.method, prompt.sample, decode=True)
        return "" if await episode.start() else self._problem(probe, episode)

    async def _prompt(self, label: str, sample: Sample, method: Method) -> Prompt:
        probe, episode = self._episode(method, sample, decode=False)
        await episode.start()
        problem = self._problem(probe, episode) if probe.verdict or not probe.tokens else ""
        return Prompt(label, method, sample, probe.tokens, probe.images, problem)

    def _episode(self, method: Method, sample: Sample, *, decode: bool) -> tuple[_Probe, Episode]:
        model = self.model.tokens
        end_of_turn_id = model.tokenizer.convert_tokens_to_ids("<|im_end|>")
        tokens = rollout_tokens(method.context_policy(), model.counter, end_of_turn_id)
        probe = _Probe(TokenBudget(tokens, self.prompt_length, self.response_length, self.max_images), decode)
        return probe, Episode(method, sample, model.envelope, probe, _FirstFrames())

    def _problem(self, probe: _Probe, episode: Episode) -> str:
        if probe.verdict is None:
            return episode.trajectory.error or f"the rollout ends at once ({episode.trajectory.stop_reason})"
        if probe.verdict is StopReason.IMAGE_BUDGET:
            return f"the prompt has {probe.images:,} images, the run allows {self.max_images:,}"
        return f"the prompt takes {probe.tokens:,} tokens, the run allows {self.prompt_length:,}"


async def measure_rows(
    meter: PromptMeter, rows: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Sequence[Method]], seconds: float
) -> list[Prompt]:
    """The prompts of rows, as many as can be started in a time. One that fails has the reason as its problem.

    Args:
        rows: by their labels.
        groups: of the rows that are measured, the methods of a group.
    """

    async def measure(label: str) -> Prompt:
        sample = Sample.from_row(rows[label])
        try:
            return await meter.measure(label, sample, groups[label])
        except VideoToolsError as error:
            return Prompt(label, groups[label][0], sample, problem=one_line(error))

    return await _in_time(measure, list(groups), seconds)


async def decode_prompts(meter: PromptMeter, prompts: Sequence[Prompt], seconds: float) -> list[tuple[str, str]]:
    """Labels of the prompts whose decoding could be started in a time, each with what is wrong."""

    async def decode(prompt: Prompt) -> tuple[str, str]:
        try:
            return prompt.label, await meter.decode(prompt)
        except VideoToolsError as error:
            return prompt.label, one_line(error)

    return await _in_time(decode, prompts, seconds)


async def _in_time(work: Callable[[Item], Awaitable[Result]], items: Sequence[Item], seconds: float) -> list[Result]:
    """Results, in the order of items, of those that were started in time, and at least one; several at a time.

    They start in an order of their own, so that those which are left out are spread over all.
    """
    gate, end = asyncio.Semaphore(_AT_ONCE), time.monotonic() + seconds
    order = list(range(len(items)))
    Random(0).shuffle(order)
    results: dict[int, Result] = {}

    async def one(place: int) -> None:
        async with gate:
            if place == order[0] or time.monotonic() < end:
                results[place] = await work(items[place])

    await asyncio.gather(*map(one, order))
    return [results[place] for place in sorted(results)]
