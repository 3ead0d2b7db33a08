"""What a row's prompt takes of a run's limits, with the frames that its video really has, and whether they decode.

A prompt is made by the `Episode` of a rollout, whose budget is asked before anything is decoded.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from verl_video_tools.core.check import one_line
from verl_video_tools.core.errors import InvariantError, VideoToolsError
from verl_video_tools.core.types import (
    Content,
    Message,
    Method,
    Retriever,
    RolloutLimits,
    Sample,
    StopReason,
    VideoInfo,
    content_images,
)
from verl_video_tools.rollout.budget import TokenBudget
from verl_video_tools.rollout.cost import estimate_cost
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.sequences import rollout_tokens
from verl_video_tools.rollout.tokens import TokenStream, check_invariants, processor_token_counts
from verl_video_tools.verl_plugin.planned_run import RunModel

Item = TypeVar("Item")


@dataclass(frozen=True)
class Prompt:
    """The most expensive prompt of a row's group.

    Attributes:
        number: of the row in its file.
        method: whose prompt it is, as that rollout configures it.
        info: of the first video; None without one.
        calls: of the largest size that fit after it, within the limits; None where the method has none.
        problem: why the run would leave the row out; empty where it fits.
        decode_seconds: that its frames took; None where they were not decoded.
    """

    number: int
    method: Method
    sample: Sample
    tokens: int = 0
    images: int = 0
    info: VideoInfo | None = None
    calls: int | None = None
    problem: str = ""
    decode_seconds: float | None = None


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


class PromptMeter:
    """Measures the prompts of rows as a run would make them.

    Args:
        model: of the run.
        limits: of the run.
        retriever: for methods whose first frames a selector chooses.
    """

    def __init__(self, model: RunModel, limits: RolloutLimits, retriever: Retriever | None = None) -> None:
        self._model = model
        self._limits = limits
        self._retriever = retriever
        self._end_of_turn_id = model.tokens.tokenizer.convert_tokens_to_ids("<|im_end|>")

    async def measure(self, number: int, sample: Sample, group: Sequence[Method]) -> Prompt:
        """The most expensive prompt of a group; nothing is decoded."""
        members = list({id(method): method for method in group}.values())
        prompts = [await self._prompt(number, sample, member) for member in members]
        failed = [prompt for prompt in prompts if prompt.problem]
        return failed[0] if failed else max(prompts, key=lambda prompt: prompt.tokens)

    async def decode(self, prompt: Prompt) -> Prompt:
        """The same prompt, with its frames decoded and its tokens compared with the processor's own count."""
        started = time.perf_counter()
        probe, episode = self._episode(prompt.method, prompt.sample, decode=True)
        messages = await episode.start()
        problem = "" if messages else self._problem(probe, episode)
        if messages:
            problem = await asyncio.to_thread(self._invariant, messages)
        return replace(prompt, problem=problem, decode_seconds=time.perf_counter() - started)

    async def _prompt(self, number: int, sample: Sample, method: Method) -> Prompt:
        probe, episode = self._episode(method, sample, decode=False)
        await episode.start()
        info, problem = episode.trajectory.video, ""
        if probe.verdict or not probe.tokens:
            problem = self._problem(probe, episode)
        calls = None if problem or info is None else await asyncio.to_thread(self._calls, method, info, sample)
        return Prompt(number, method, sample, probe.tokens, probe.images, info, calls, problem)

    def _episode(self, method: Method, sample: Sample, *, decode: bool) -> tuple[_Probe, Episode]:
        tokens = rollout_tokens(method.context_policy(), self._model.tokens.counter, self._end_of_turn_id)
        limits = self._limits
        probe = _Probe(TokenBudget(tokens, limits.prompt_tokens, limits.response_tokens, limits.images), decode)
        return probe, Episode(method, sample, self._model.tokens.envelope, probe, self._retriever)

    def _problem(self, probe: _Probe, episode: Episode) -> str:
        if probe.verdict is None:
            return episode.trajectory.error or f"the rollout ends at once ({episode.trajectory.stop_reason})"
        if probe.verdict is StopReason.IMAGE_BUDGET:
            return f"the prompt has {probe.images:,} images, the run allows {self._limits.images:,}"
        return f"the prompt takes {probe.tokens:,} tokens, the run allows {self._limits.prompt_tokens:,}"

    def _calls(self, method: Method, info: VideoInfo, sample: Sample) -> int | None:
        tokens = turn_tokens(self._limits)
        cost = estimate_cost(
            method, info, self._model.tokens, question=sample.question, turn_tokens=tokens, group_size=1
        )
        return None if cost.call is None else cost.calls_that_fit(self._limits)

    def _invariant(self, messages: Sequence[Message]) -> str:
        model = self._model
        stream = TokenStream(model.tokens.counter)
        stream.start(messages)
        counts = processor_token_counts(model.processor.image_processor, stream.images, model.pixel_options)
        try:
            check_invariants(stream, model.image_token_id, counts, model.video_token_id)
        except InvariantError as error:
            return str(error)
        return ""


def turn_tokens(limits: RolloutLimits) -> int:
    """What a turn is taken to write when calls are counted."""
    return max(16, min(512, limits.response_tokens // 16))


async def measure_rows(
    meter: PromptMeter,
    rows: Sequence[tuple[int, Mapping[str, Any]]],
    group_of: Callable[[str | None], Sequence[Method]],
    seconds: float,
) -> list[Prompt]:
    """The prompts of rows, as many as can be started in a time. One that fails has the reason as its problem.

    Args:
        rows: with their numbers.
        group_of: the methods of a group, by the row's agent name.
    """

    async def measure(numbered: tuple[int, Mapping[str, Any]]) -> Prompt:
        number, row = numbered
        sample, group = Sample.from_row(row), group_of(row.get("agent_name"))
        try:
            return await meter.measure(number, sample, group)
        except VideoToolsError as error:
            return Prompt(number, group[0], sample, problem=one_line(error))

    measured = await _in_time(measure, rows, seconds)
    return [measured[place] for place in sorted(measured)]


async def decode_rows(meter: PromptMeter, prompts: Sequence[Prompt], seconds: float) -> list[Prompt]:
    """The prompts, with their frames decoded where that can be started in a time."""

    async def decode(prompt: Prompt) -> Prompt:
        try:
            return await meter.decode(prompt)
        except VideoToolsError as error:
            return replace(prompt, problem=one_line(error))

    decoded = await _in_time(decode, prompts, seconds)
    return [decoded.get(place, prompt) for place, prompt in enumerate(prompts)]


async def _in_time(
    work: Callable[[Item], Awaitable[Prompt]], items: Sequence[Item], seconds: float
) -> dict[int, Prompt]:
    """Results by place, of those that were started in time, and at least one; several at a time.

    In an order of its own, so that those which are left out are spread over all.
    """
    gate, end = asyncio.Semaphore(_at_once()), time.monotonic() + seconds
    results: dict[int, Prompt] = {}
    order = list(range(len(items)))
    Random(0).shuffle(order)

    async def one(place: int) -> None:
        async with gate:
            if place == order[0] or time.monotonic() < end:
                results[place] = await work(items[place])

    await asyncio.gather(*map(one, order))
    return results


def _at_once() -> int:
    """Rows under way: their frames are held in memory, and a long video has hundreds."""
    return max(2, min(8, os.cpu_count() or 1))
