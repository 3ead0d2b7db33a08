"""`ChatPolicy`: a method's episodes with a chat model behind an endpoint as the assistant.

Server and sampling see messages, not tokens: no token budget applies but the server's own.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import astuple, dataclass, field, fields, replace
from functools import partial
from typing import Any

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import EndpointError, PolicyError
from verl_video_tools.core.reasoning import CLOSING, ParsedCompletion, split_reasoning
from verl_video_tools.core.types import (
    FrameRecord,
    Message,
    Method,
    PixelEnvelope,
    Retriever,
    Sample,
    ToolModel,
    Trajectory,
    VideoInfo,
)
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.observation import next_context
from verl_video_tools.rollout.opened_reasoning import OpenedReasoning
from verl_video_tools.rollout.policy import AssistantTurn, until_stop
from verl_video_tools.services.chat import restore_stop, to_chat_message
from verl_video_tools.services.config import EndpointConfig
from verl_video_tools.services.endpoint import Completion, EndpointClient, Route

_KEEP_STOP = "include_stop_str_in_output"
"""A field of vLLM and SGLang, beside those of the OpenAI interface."""

_TOO_LONG = re.compile(r"context[ _]length|maximum model length|at most \d+ image", re.IGNORECASE)
"""In the refusals of vLLM, SGLang and OpenAI: the request is longer, or has more images, than the server takes."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is sampled. An option of None is not sent, so that the endpoint's own default applies.

    The method limits the tokens of a turn (`max_turn_tokens`).

    Raises:
        UsageError: a value outside its range.
    """

    temperature: float = 1.0
    top_p: float | None = None
    """Sample only from the most likely tokens that together have this probability, above 0 and at most 1."""

    def __post_init__(self) -> None:
        require(self, "temperature", self.temperature >= 0, "at least 0")
        require(self, "top_p", self.top_p is None or 0 < self.top_p <= 1, "above 0 and at most 1, or None")

    def sampling(self) -> dict[str, Any]:
        """The options by name, also those that are None."""
        return {field.name: getattr(self, field.name) for field in fields(Sampling)}

    def sampling_fields(self) -> dict[str, Any]:
        """Those that are sent with a request."""
        return {name: value for name, value in self.sampling().items() if value is not None}

    def refused_field(self, error: EndpointError) -> str | None:
        """The option that a refused request was refused for; None where the refusal names none that was sent."""
        return next((name for name in self.sampling_fields() if name in str(error)), None)


@dataclass(frozen=True, kw_only=True)
class PolicyConfig(EndpointConfig, Sampling):
    """The address of the policy, and how it is sampled.

    Raises:
        UsageError: a value outside its range.
    """

    envelope: PixelEnvelope = field(default_factory=PixelEnvelope)
    """Sizes that the model's processor does not change, so that images are those of training. With the default, images
    have the size that the method requests, and the server fits them to its processor."""
    jpeg_quality: int | None = None
    """Quality of the images, 1 to 95. None: the images are PNG, which shows the model what training would show."""

    def __post_init__(self) -> None:
        EndpointConfig.__post_init__(self)
        Sampling.__post_init__(self)
        require(self, "jpeg_quality", self.jpeg_quality is None or 1 <= self.jpeg_quality <= 95, "1 to 95, or None")


@dataclass(slots=True)
class Usage:
    """What the replies that make up a rollout have cost; replies that were tried again do not count.

    Attributes:
        requests: replies.
        prompt_tokens: of all requests together, images and what is sent again included; 0 where the endpoint does not
            count them.
        completion_tokens: of all replies; 0 likewise.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, completion: Completion) -> None:
        self.requests += 1
        self.prompt_tokens += completion.num_prompt_tokens
        self.completion_tokens += completion.num_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class ChatRollout:
    """A finished rollout, the tokens that the endpoint says it generated for it (0 where it does not count), and what
    it has cost."""

    trajectory: Trajectory
    num_generated_tokens: int
    usage: Usage = field(default_factory=Usage)


Watch = Callable[[Trajectory, Sequence[Message]], None]
"""Takes a rollout so far, and the messages that its model has not read yet, pixels included."""


class ChatPolicy(AbstractAsyncContextManager["ChatPolicy"]):
    """Rollouts with one chat model. Used as an async context, which closes its connections.

    Raises:
        UsageError: no `base_url`, or the package `openai` is missing.
    """

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        self.client = EndpointClient(config)
        self._refusal: EndpointError | None = None
        """An option of sampling is refused: so will every other request be."""
        self._knows_keep_stop = True
        self._opened_reasoning = OpenedReasoning(self._send_detached)
        self._names_stop = False
        """A reasoning has been seen to name the stop string, which ended it there."""

    async def rollout(
        self,
        method: Method,
        sample: Sample,
        *,
        prefix_turns: Sequence[str] = (),
        prefix_initial_frames: Sequence[int] | None = None,
        instruction: str | None = None,
        seed: int | None = None,
        retriever: Retriever | None = None,
        tool_model: ToolModel | None = None,
        watch: Watch | None = None,
    ) -> ChatRollout:
        """One rollout. An endpoint that fails ends it as `aborted`, flagged, with the reason in its record.

        A rollout that exceeds what the server accepts ends as one in training that exceeds its response budget:
        with an empty turn that was cut. A prompt that does not fit is a failure.

        Each request shows what the method's context policy leaves of the images, as in training.

        Args:
            prefix_turns: assistant turns that come first, executed and not sampled.
            prefix_initial_frames: indices of the frames that these turns were written about; where others are shown,
                the rollout is aborted before any request.
            instruction: appended to the method's system prompt.
            seed: of the first turn's sampling, one more for each further turn; None leaves it to the endpoint.
            retriever: for tools that find frames by text.
            tool_model: for tools that ask a model.
            watch: called before each turn.
        """
        episode = Episode(method, sample, self.config.envelope, retriever=retriever, tool_model=tool_model)
        with self.client.route() as route:
            dialogue = _Dialogue(self, route, episode, prefix_turns, prefix_initial_frames, instruction, seed, watch)
            trajectory = await episode.run(dialogue)
        num_turns = len(trajectory.turns)
        if prefix_turns and num_turns <= len(prefix_turns) and not trajectory.flags:
            reason = trajectory.stop_reason
            episode.abort(f"the given turns do not replay: {reason} after {num_turns} of {len(prefix_turns)}")
        return ChatRollout(trajectory, dialogue.num_generated_tokens, dialogue.usage)

    async def check_usable(self) -> None:
        """Raise EndpointError where no rollout can be made: nothing answers, or an option of sampling is refused."""
        if self._refusal is not None:
            raise self._refusal
        await self.client.check_reachable()

    async def next_turn(
        self, route: Route, method: Method, request: dict[str, Any], *, may_exceed: bool
    ) -> tuple[AssistantTurn, Completion | None]:
        """The model's next turn in a dialogue, and the reply that it was read from.

        Args:
            request: `messages`, and further fields.
            may_exceed: a request that is longer than the server takes gives an empty turn that was cut, and no reply.

        Raises:
            EndpointError: the request failed.
        """
        try:
            completion = await self._complete(route, method, request)
        except EndpointError as error:
            if not may_exceed or not _TOO_LONG.search(str(error)):
                raise
            return AssistantTurn("", truncated=True), None
        parsed = await self._parsed(completion, method, route)
        truncated = completion.finish_reason == "length" and not parsed.text.endswith(method.stop)
        return AssistantTurn(parsed.text, truncated, parsed.reasoning), completion

    async def __aexit__(self, *error: object) -> None:
        await self.client.aclose()

    # ------------------------------------------------------------------------------------------------------- internals

    async def _complete(self, route: Route, method: Method, request: dict[str, Any]) -> Completion:
        """The next assistant turn, with the stop string that ended it.

        Raises:
            EndpointError: the request failed.
        """
        body = {**request, **self.config.sampling_fields()}
        if method.max_turn_tokens is not None:
            body["max_tokens"] = method.max_turn_tokens
        if method.stop and not self._names_stop:
            body["stop"] = list(method.stop)
        completion = await self._fitted(route, body)
        if "stop" not in body:
            return completion
        completion = replace(completion, text=restore_stop(completion, method.stop))
        if _may_stop_in_reasoning(completion, method.stop):
            del body["stop"]
            whole = await self._fitted(route, body)
            if whole.reasoning is not None or CLOSING in whole.text:
                self._names_stop = True
                return replace(whole, num_discarded_tokens=completion.num_tokens)
        return completion

    async def _fitted(self, route: Route, body: dict[str, Any]) -> Completion:
        try:
            return await self._send(route, body)
        except EndpointError as error:
            if "max_tokens" not in body or not _TOO_LONG.search(str(error)):
                raise
            del body["max_tokens"]  # less is left than a turn may take: the server then gives what is left
            return await self._send(route, body)

    async def _send_detached(self, route: Route, request: dict[str, Any]) -> Completion:
        """The reply to a request that belongs to no rollout, and is none of its cost.

        Raises:
            EndpointError: there is none.
        """
        return await self._fitted(route, {**request, **self.config.sampling_fields()})

    async def _send(self, route: Route, body: dict[str, Any]) -> Completion:
        keeps_stop = self._knows_keep_stop and "stop" in body
        try:
            sent = {**body, _KEEP_STOP: True} if keeps_stop else body
            return await self.client.complete(sent, lambda completion: completion, route=route)
        except EndpointError as error:
            if keeps_stop and _KEEP_STOP in str(error):
                self._knows_keep_stop = False
                return await self._send(route, body)
            if (name := self.config.refused_field(error)) is None:
                raise
            self._refusal = EndpointError(
                f"the endpoint does not take {name}={getattr(self.config, name)!r}; leave it out, or ask a "
                f"server that takes it, such as vLLM's: {error}"
            )
            raise self._refusal from error

    async def _parsed(self, completion: Completion, method: Method, route: Route) -> ParsedCompletion:
        """What the model says, up to its first stop string, and what it thought before."""
        cut = completion.finish_reason == "length"
        opened = cut and await self._opened_reasoning.before(completion, route)
        parsed = split_reasoning(completion.text, method, reasoning=completion.reasoning, opened=opened, cut=cut)
        self._opened_reasoning.see(completion.text)
        return replace(parsed, text=until_stop(parsed.text, method.stop))


@dataclass
class _Dialogue:
    """The policy of one rollout: the given turns, then the model's."""

    chat: ChatPolicy
    route: Route
    episode: Episode
    prefix_turns: Sequence[str]
    prefix_initial_frames: Sequence[int] | None
    instruction: str | None
    seed: int | None
    watch: Watch | None = None
    num_generated_tokens: int = 0
    usage: Usage = field(default_factory=Usage)
    _messages: list[Message] = field(default_factory=list)
    _encoded: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By the identity of the messages."""

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn:
        if not self._messages:
            self._check_initial_frames()
            messages = messages if self.instruction is None else _instructed(messages, self.instruction)
        if self.watch is not None:
            await asyncio.to_thread(self.watch, self.episode.trajectory, messages)
        await self._add(messages)
        number = len(self.episode.trajectory.turns)
        if number < len(self.prefix_turns):
            turn = AssistantTurn(self.prefix_turns[number])
        else:
            turn = await self._sampled_turn(number)
        await self._add([Message("assistant", (turn.text,))])
        return turn

    async def _sampled_turn(self, number: int) -> AssistantTurn:
        seen = next_context(self.episode.method.context_policy(), self._messages)
        encoded = self._encoded | await self._encode([message for message in seen if id(message) not in self._encoded])
        request: dict[str, Any] = {"messages": [encoded[id(message)] for message in seen]}
        if self.seed is not None:
            request["seed"] = self.seed + number
        method, trajectory = self.episode.method, self.episode.trajectory
        if method.initial_frames_as_video and trajectory.video is not None:
            request |= video_fields(trajectory.video, trajectory.initial_frames)
        return await self._sample(request, may_exceed=number > 0)

    async def detached(self, messages: Sequence[Message]) -> AssistantTurn:
        encode = partial(to_chat_message, jpeg_quality=self.chat.config.jpeg_quality)
        request: dict[str, Any] = {"messages": await asyncio.to_thread(lambda: list(map(encode, messages)))}
        if self.seed is not None:
            request["seed"] = self.seed + len(self.episode.trajectory.turns)
        return await self._sample(request, may_exceed=True)

    async def _sample(self, request: dict[str, Any], *, may_exceed: bool) -> AssistantTurn:
        try:
            turn, reply = await self.chat.next_turn(self.route, self.episode.method, request, may_exceed=may_exceed)
        except EndpointError as error:
            raise PolicyError(str(error)) from error
        if reply is not None:
            self.num_generated_tokens += reply.num_tokens + reply.num_discarded_tokens
            self.usage.add(reply)
        return turn

    def _check_initial_frames(self) -> None:
        if self.prefix_initial_frames is None:
            return
        if difference := self.episode.trajectory.initial_frames_difference(self.prefix_initial_frames):
            raise PolicyError(
                f"the given turns do not replay: {difference}; give the method the fields that it was recorded with"
            )

    async def _add(self, messages: Sequence[Message]) -> None:
        self._messages += messages
        self._encoded |= await self._encode(messages)

    async def _encode(self, messages: Sequence[Message]) -> dict[int, dict[str, Any]]:
        quality, as_video = self.chat.config.jpeg_quality, self.episode.method.initial_frames_as_video
        encode = partial(to_chat_message, jpeg_quality=quality, as_video=as_video)
        return await asyncio.to_thread(lambda: {id(message): encode(message) for message in messages})


def _may_stop_in_reasoning(completion: Completion, stop: Sequence[str]) -> bool:
    """Whether a stop string may have ended a native reasoning that names it: servers look for it there, too."""
    if completion.finish_reason != "stop":
        return False
    if not completion.text.strip():
        return completion.reasoning is not None
    return completion.reasoning is None and completion.text.endswith(tuple(stop)) and CLOSING not in completion.text


def _instructed(messages: Sequence[Message], instruction: str) -> list[Message]:
    first, *rest = messages
    if first.role != "system":
        return [Message("system", (instruction,)), *messages]
    return [Message("system", (*first.content, f"\n\n{instruction}")), *rest]


def video_fields(info: VideoInfo, frames: Sequence[FrameRecord]) -> dict[str, Any]:
    """Fields of a request whose first message with images shows these frames of a video as one.

    vLLM decodes a `data:video/jpeg` URL as frames that were sampled already, and takes the facts of the file that they
    come from with the request (`media_io_kwargs`, vLLM 0.24). They decide which times the model is told: vLLM hands
    them to the processor of Qwen3-VL, and not to that of Qwen2.5-VL, which then takes the frames for 24 of a second.

    Bounds of the processor are set so wide that it leaves the frames at their size: for Qwen2.5-VL they bound the area
    of a frame, for Qwen3-VL that of all frames together.
    """
    is_even = info.uneven_last_seconds is None
    media = {
        "num_frames": -1,  # all that are sent
        # A frame's number over the rate is taken for its time. At a variable rate that holds for milliseconds only.
        "fps": info.average_fps if is_even else 1000.0,
        "frames_indices": [frame.index if is_even else round(1000 * frame.timestamp_seconds) for frame in frames],
        "total_num_frames": info.num_frames if is_even else math.ceil(1000 * info.duration_seconds),
        "duration": info.duration_seconds,
        "do_sample_frames": False,
    }
    area = frames[0].width * frames[0].height
    size = {"shortest_edge": 1, "longest_edge": area * (len(frames) + 1)}  # an odd number is filled up by one
    return {"media_io_kwargs": {"video": media}, "mm_processor_kwargs": {"size": size}}
