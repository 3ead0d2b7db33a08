"""Exchanges noted in a rollout's record, within its limits; and given again, so that it replays without a model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from verl_video_tools.core.errors import CallErrorCode, CallRejected, ToolModelError
from verl_video_tools.core.messages import Content, content_images, content_text
from verl_video_tools.core.model_calls import ModelCall, ModelLimits, ModelReply, ToolModel
from verl_video_tools.core.types import Trajectory


@dataclass
class Spent:
    """What a rollout has asked so far."""

    calls: int = 0
    tokens: int = 0


class RecordingToolModel:
    """A `ToolModel` of one call that notes its exchanges, and keeps the rollout within the model's limits.

    Args:
        model: asked.
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
        if spent.calls >= limits.calls or (limits.tokens is not None and spent.tokens >= limits.tokens):
            # Without numbers: replayed, the rollout has other limits, and the model that is trained reads the same.
            raise CallRejected(CallErrorCode.MODEL_BUDGET, "all that may be asked of this model is used up")
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
        spent.tokens += reply.prompt_tokens + reply.completion_tokens
        exchange.reply, exchange.model, exchange.cut = reply.text, reply.model, reply.cut
        exchange.prompt_tokens, exchange.completion_tokens = reply.prompt_tokens, reply.completion_tokens
        return reply


def recorded_exchanges(trajectory: Trajectory) -> list[dict[str, Any]]:
    """What a rollout asked of its tools' model, in order, JSON-able: the argument of `RecordedToolModel`. Without
    frames: the replay has its own."""
    exchanges = (exchange for call in trajectory.calls() for exchange in call.model_calls)
    return [asdict(replace(exchange, frames=[])) for exchange in exchanges]


class RecordedToolModel:
    """A `ToolModel` that gives recorded replies in their order, and refuses what was refused.

    Args:
        exchanges: as `recorded_exchanges` gives them.
    """

    def __init__(self, exchanges: Iterable[Mapping[str, Any]]) -> None:
        self._exchanges = list(exchanges)
        self._next = 0

    @property
    def limits(self) -> ModelLimits:
        """As many questions as are recorded: what the rollout asked beyond them was refused."""
        return ModelLimits(calls=len(self._exchanges))

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        """The next recorded reply.

        Raises:
            CallRejected: as recorded.
            ToolModelError: as recorded; or there is none, or it is one to another question: the rollout does not
                replay.
        """
        if self._next >= len(self._exchanges):
            raise ToolModelError("no further reply is recorded; export the rollout again from its record")
        found = self._exchanges[self._next]
        self._next += 1
        request = content_text(content)
        if found["request"] != request:
            raise ToolModelError(
                f"the reply recorded next answers {found['request']!r:.100} and not {request!r:.100}; export the "
                "rollout again with these settings"
            )
        if found.get("reply") is None:
            error = str(found.get("error"))
            if error.startswith(f"{CallErrorCode.NO_REPLY}:"):
                raise CallRejected(CallErrorCode.NO_REPLY, "the model gave no reply that can be used")
            raise ToolModelError(error)
        tokens = int(found.get("prompt_tokens", 0)), int(found.get("completion_tokens", 0))
        return ModelReply(str(found["reply"]), str(found.get("model")), *tokens, bool(found.get("cut", False)))
