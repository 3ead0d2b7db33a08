"""The model that tools ask: a captioner, a reader of text in frames, a sub-agent (docs/tools.md).

`EndpointToolModel` asks it at an OpenAI-compatible endpoint. `RecordingToolModel` notes the exchanges of a rollout and
keeps it within its limits; `RecordedToolModel` gives them again, so that a record replays without a model.
`ScriptedToolModel` and `FunctionToolModel` replace it in tests.

A failure is that of one question only where the endpoint has shown that it works: it has given a usable reply before,
and is still there. Everything else, such as a wrong address, a refused key or a server that is down, says nothing of
the question, and keeps the rollout out of training.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from verl_video_tools.core.errors import CallErrorCode, CallRejected, EndpointError, ToolModelError
from verl_video_tools.core.messages import Content, Message, content_images, content_text
from verl_video_tools.core.prompts import read_prompt
from verl_video_tools.core.reasoning import without_reasoning
from verl_video_tools.core.services import ModelCall, ModelLimits, ModelReply, RecordedByCall, ToolModel
from verl_video_tools.core.types import Trajectory
from verl_video_tools.services.chat import to_chat_message
from verl_video_tools.services.config import ToolModelConfig as ToolModelConfig
from verl_video_tools.services.endpoint import Completion, EndpointClient, Refused, UnusableReply


class EndpointToolModel(EndpointClient):
    """A `core.services.ToolModel` on an OpenAI-compatible endpoint.

    Args:
        config: `base_url` must be set.

    Raises:
        UsageError: no `base_url`, or the packages of the extra `judge` are not there.
    """

    def __init__(self, config: ToolModelConfig) -> None:
        super().__init__(config, "tool's model")
        self.config = config
        self._prompt = read_prompt("verl_video_tools.services.prompts", "tool_model.txt", None)

    @property
    def limits(self) -> ModelLimits:
        return self.config.limits

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        """The reply to one user message; raises as `core.services.ToolModel.ask`."""
        try:
            async with asyncio.timeout(deadline_seconds):
                # Encoding frames takes milliseconds each, for which no other rollout should wait.
                user = await asyncio.to_thread(to_chat_message, Message("user", content))
                body = {
                    "messages": [{"role": "system", "content": self._prompt}, user],
                    "temperature": 0.0,  # a tool's answer should not depend on chance
                    "max_tokens": self.config.max_tokens,
                }
                model = await self.model()
                return await self.complete(body, lambda completion: _read_reply(completion, model))
        except TimeoutError as error:
            raise ToolModelError(f"the tool's model gave no reply within {deadline_seconds:g} s") from error
        except Refused as error:
            if not self.has_answered:
                raise ToolModelError(f"no reply from the tool's model: {error}") from error
            raise CallRejected(CallErrorCode.NO_REPLY, "the model gave no reply that can be used") from error
        except EndpointError as error:
            raise ToolModelError(f"no reply from the tool's model: {error}") from error


def _read_reply(completion: Completion, model: str) -> ModelReply:
    """Raises UnusableReply for a reply without words."""
    text = without_reasoning(completion.text).strip()
    if not text:
        raise UnusableReply(f"the reply has no words beside its reasoning: {completion.excerpt}")
    cut = completion.finish_reason == "length"
    return ModelReply(text, model, completion.num_prompt_tokens, completion.num_tokens, cut)


@cache
def connected(config: ToolModelConfig) -> EndpointToolModel:
    """The client of this process for a config, which all its rollouts share: bounds and breaker hold over all of them.
    Raises UsageError as `EndpointToolModel`."""
    return EndpointToolModel(config)


@dataclass
class Spent:
    """Requests of a rollout so far."""

    calls: int = 0


class RecordingToolModel:
    """A `ToolModel` of one call that notes its exchanges, and keeps the rollout within the model's limits.

    Args:
        model: replies.
        spent: of the rollout; grows.
        exchanges: of the call; each is appended.
    """

    def __init__(self, model: ToolModel, spent: Spent, exchanges: list[ModelCall]) -> None:
        self._model = model
        self._spent = spent
        self._exchanges = exchanges

    @property
    def limits(self) -> ModelLimits:
        return self._model.limits

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        limits, spent = self._model.limits, self._spent
        if spent.calls >= limits.calls:
            raise _used_up()
        spent.calls += 1
        exchange = ModelCall(content_text(content), [image.record for image in content_images(content)])
        self._exchanges.append(exchange)
        started = time.perf_counter()
        try:
            reply = await self._model.ask(content, deadline_seconds)
        except CallRejected as error:
            exchange.error = f"{error.code}: {error.__cause__ or error.message}"
            raise
        except ToolModelError as error:
            exchange.error = f"{CallErrorCode.MODEL_ERROR}: {error}"
            raise
        finally:
            exchange.latency_ms = (time.perf_counter() - started) * 1e3
        exchange.reply, exchange.model, exchange.cut = reply.text, reply.model, reply.cut
        exchange.prompt_tokens, exchange.completion_tokens = reply.prompt_tokens, reply.completion_tokens
        return reply


def _used_up() -> CallRejected:
    # Without numbers: the model that is trained reads the same where the rollout is replayed.
    return CallRejected(CallErrorCode.MODEL_BUDGET, "all that may be asked of this model is used up")


def recorded_exchanges(trajectory: Trajectory) -> list[list[dict[str, Any]]]:
    """The exchanges of a rollout with its tools' model, JSON-able: a list per call, the first one of the initial
    frames, which ask no model; [] if no call asked. Without frames: the replay has its own."""
    calls = [[asdict(replace(exchange, frames=[])) for exchange in call.model_calls] for call in trajectory.calls()]
    return [[], *calls] if any(calls) else []


class RecordedToolModel:
    """A `ToolModel` that gives the recorded replies of one call in their order, and refuses what was refused.

    Args:
        exchanges: of the call, one of the lists of `recorded_exchanges`; None: the record does not tell.
    """

    limits = ModelLimits(calls=sys.maxsize)
    """The call's further requests were refused, and are again."""

    def __init__(self, exchanges: Iterable[Mapping[str, Any]] | None) -> None:
        self._exchanges = None if exchanges is None else list(exchanges)
        self._next = 0

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        """The next recorded reply.

        Raises:
            CallRejected: as recorded; or no reply is left.
            ToolModelError: as recorded; or the next reply is for another message, or none is recorded: the rollout
                does not replay.
        """
        if self._exchanges is None:
            raise ToolModelError("no reply is recorded; export the rollout again from its record")
        if self._next >= len(self._exchanges):
            raise _used_up()
        exchange = self._exchanges[self._next]
        self._next += 1
        request = content_text(content)
        if exchange["request"] != request:
            raise ToolModelError(
                f"the reply recorded next answers {exchange['request']!r:.100} and not {request!r:.100}; export the "
                "rollout again with these settings"
            )
        if exchange.get("reply") is None:
            error = str(exchange.get("error"))
            if error.startswith(f"{CallErrorCode.NO_REPLY}:"):
                raise CallRejected(CallErrorCode.NO_REPLY, "the model gave no reply that can be used")
            raise ToolModelError(error)
        tokens = int(exchange.get("prompt_tokens", 0)), int(exchange.get("completion_tokens", 0))
        return ModelReply(str(exchange["reply"]), str(exchange.get("model")), *tokens, bool(exchange.get("cut", False)))


def recorded_tool_model(exchanges: Sequence[Sequence[Mapping[str, Any]]]) -> RecordedByCall[ToolModel]:
    """What stands in for the model where a rollout is replayed.

    Args:
        exchanges: as `recorded_exchanges` gives them.
    """
    return RecordedByCall(lambda number: RecordedToolModel(exchanges[number] if number < len(exchanges) else None))


SCRIPTED = "scripted"
"""The model that replies of the stand-ins name."""


class FunctionToolModel:
    """Replies what a function makes of the message, and remembers the messages.

    Args:
        function: gives the reply's text, or a whole reply; what it raises is raised.
        limits: of one rollout.
    """

    def __init__(self, function: Callable[[Content], str | ModelReply], limits: ModelLimits | None = None) -> None:
        self._function = function
        self.limits = limits or ModelLimits()
        self.requests: list[Content] = []

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        self.requests.append(content)
        reply = self._function(content)
        return reply if isinstance(reply, ModelReply) else ModelReply(reply, SCRIPTED)


class ScriptedToolModel(FunctionToolModel):
    """Gives replies in order, whatever the message.

    Args:
        replies: texts; an exception among them is raised in its place. After the last one, ToolModelError.
    """

    def __init__(self, replies: Iterable[str | Exception], limits: ModelLimits | None = None) -> None:
        super().__init__(self._next, limits)
        self._replies = iter(replies)

    def _next(self, _: Content) -> str:
        reply = next(self._replies, None)
        if reply is None:
            raise ToolModelError(f"the script of the tool's model has no reply number {len(self.requests)}")
        if isinstance(reply, Exception):
            raise reply
        return reply
