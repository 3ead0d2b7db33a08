"""`EndpointToolModel`: a tool's model behind an OpenAI-compatible endpoint.

A failure is that of one question only where the endpoint has shown that it works: it has given a usable reply before,
and is still there. Everything else, such as a wrong address, a refused key or a server that is down, says nothing of
the question, and keeps the rollout out of training.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from verl_video_tools.core.errors import CallErrorCode, CallRejected, EndpointError, ToolModelError
from verl_video_tools.core.messages import Content, Message
from verl_video_tools.core.model_calls import ModelLimits, ModelReply
from verl_video_tools.core.prompt_files import read_prompt
from verl_video_tools.core.reasoning import without_reasoning
from verl_video_tools.services.endpoint.breakable import BreakableClient
from verl_video_tools.services.endpoint.chat import Completion, read_completion, to_chat_message
from verl_video_tools.services.endpoint.client import Exchange
from verl_video_tools.services.endpoint.retries import AttemptFailed, BrokenReply
from verl_video_tools.services.tool_model.config import ToolModelConfig

_OF_THE_QUESTION = frozenset({400, 413, 422})
"""HTTP codes of a request that is refused for what it holds, such as too many images or too long a text."""

_Body = dict[str, Any]


class EndpointToolModel(BreakableClient[_Body]):
    """A `core.model_calls.ToolModel` on an OpenAI-compatible endpoint.

    May be used from several event loops; connections belong to the running one. Close it in each (`async with`, or
    `aclose`).

    Args:
        config: `base_url` must be set.

    Raises:
        UsageError: no `base_url`, an unreadable prompt file, or the packages of the extra `judge` are not there.
    """

    def __init__(self, config: ToolModelConfig) -> None:
        super().__init__(config, config.probe_interval_seconds, "tool's model", EndpointError)
        self.config = config
        self._prompt = read_prompt(__package__, "prompt.txt", config.prompt_file)
        self._has_replied = False

    @property
    def limits(self) -> ModelLimits:
        return self.config.limits

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        """The reply to one user message; raises as `core.model_calls.ToolModel.ask`."""
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self._reply(content)
        except TimeoutError as error:
            raise ToolModelError(f"the tool's model gave no reply within {deadline_seconds:g} s") from error
        except EndpointError as error:
            raise ToolModelError(f"no reply from the tool's model: {error}") from error

    async def served_models(self) -> list[str]:
        """Names of the models that the endpoint lists. Raises EndpointError where it cannot be reached."""
        return await self._endpoint.served_models()

    # ------------------------------------------------------------------------------------------------------- internals

    async def _reply(self, content: Content) -> ModelReply:
        # Encoding frames takes milliseconds each, for which no other rollout should wait.
        user = await asyncio.to_thread(to_chat_message, Message("user", content), self.config.jpeg_quality)
        body: _Body = {
            "messages": [{"role": "system", "content": self._prompt}, user],
            "temperature": self.config.temperature,
            "max_tokens": self.config.max_tokens,
        }
        breaker = self._breaker()
        breaker.check(body)
        exchange: Exchange | None = None
        try:
            async with self._endpoint.exchange() as exchange:
                body["model"] = await exchange.model()
                breaker.check(body)  # others may have found it out while this one waited for its turn
                return await exchange.retried(lambda: self._attempt(exchange, body))
        except EndpointError as error:
            if exchange is not None and exchange.is_late:
                breaker.failed(body, error)
            elif self._has_replied and _is_of_the_question(error):
                raise CallRejected(CallErrorCode.NO_REPLY, "the model gave no reply that can be used") from error
            raise

    async def _attempt(self, exchange: Exchange, body: _Body) -> ModelReply:
        completion = read_completion(await exchange.chat_completion(body))
        self._breaker().replied()
        reply = _read_reply(completion, body["model"])
        self._has_replied = True
        return reply

    def _request(self, model: str, question: _Body) -> dict[str, Any]:
        return {**question, "model": model}


def _read_reply(completion: Completion, model: str) -> ModelReply:
    """Raises AttemptFailed for a reply without words."""
    text = without_reasoning(completion.text).strip()
    if not text:
        raise AttemptFailed(f"the reply has no words beside its reasoning: {completion.text!r:.200}")
    cut = completion.finish_reason == "length"
    return ModelReply(text, model, completion.num_prompt_tokens, completion.num_tokens, cut)


def _is_of_the_question(error: EndpointError) -> bool:
    """Whether the endpoint has failed on what it was asked: no words, an error of its own on this, or a refusal of it.

    What came instead of a completion, such as a proxy's page, is no reply of a model at all.
    """
    cause = error.__cause__
    if getattr(cause, "status_code", None) in _OF_THE_QUESTION:
        return True
    return isinstance(cause, AttemptFailed) and not isinstance(cause, BrokenReply)


@cache
def connected(config: ToolModelConfig) -> EndpointToolModel:
    """The client of this process for a config, which all its rollouts share: bounds and breaker hold over all of them.
    Raises UsageError as `EndpointToolModel`."""
    return EndpointToolModel(config)
