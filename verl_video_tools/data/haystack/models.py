"""The models that are asked, and how their replies are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from verl_video_tools.core.json_text import json_objects
from verl_video_tools.core.prompt_files import read_prompt
from verl_video_tools.core.reasoning import without_reasoning
from verl_video_tools.core.types import Content, Message
from verl_video_tools.data.haystack.log import digest
from verl_video_tools.services.endpoint import AttemptFailed, EndpointClient, EndpointConfig
from verl_video_tools.services.endpoint.chat import read_completion, to_chat_message

Result = TypeVar("Result")

PROMPT_FILES = ("caption.txt", "questions.txt", "text_check.txt", "visual_check.txt")


@dataclass(frozen=True)
class Question:
    """One question, with the numbers of the first and the last part that answer it, as its writer counts them."""

    question: str
    answer: str
    first_part: int
    last_part: int


@dataclass(frozen=True)
class Verdict:
    """What a check says.

    Attributes:
        score: 0 to 1; a check by text says 0 or 1.
    """

    score: float
    reason: str


class ChatModel:
    """One model behind an endpoint. Used as an async context, which closes its connections.

    Args:
        jpeg_quality: of pictures, 1 to 95; None sends PNG.

    Raises:
        UsageError: no `base_url`, or the package `openai` is missing.
    """

    def __init__(self, config: EndpointConfig, jpeg_quality: int | None = None) -> None:
        self._client = EndpointClient(config)
        self._jpeg_quality = jpeg_quality

    async def name(self) -> str:
        """The configured model, or the first that the endpoint lists.

        Raises:
            EndpointError: it lists none, or cannot be reached.
        """
        async with self._client.exchange() as exchange:
            return await exchange.model()

    async def check_reachable(self) -> None:
        """Raises EndpointError if nothing answers at the endpoint."""
        await self._client.check_reachable()

    async def caption(self, frames: Content, max_tokens: int) -> str:
        """A description of the frames, of so many tokens at most.

        Raises:
            EndpointError: there is none.
        """
        return await self._ask("caption.txt", frames, max_tokens, _read_caption)

    async def questions(self, captions: str, num_parts: int, num_questions: int, max_tokens: int) -> list[Question]:
        """Questions about described parts, perhaps none.

        Args:
            num_parts: how many parts `captions` describes, numbered from 1.
            max_tokens: of the reply with all of them.

        Raises:
            EndpointError: no reply could be read.
        """

        def read(reply: str) -> list[Question]:
            return _read_questions(reply, num_parts)[:num_questions]

        return await self._ask("questions.txt", (captions,), max_tokens, read, num_questions=num_questions)

    async def check_text(self, captions: str, question: str, answer: str, max_tokens: int) -> Verdict:
        """Whether a question is worth looking at.

        Raises:
            EndpointError: no reply could be read.
        """
        content = f"{captions}\n\nQuestion: {question}\nAnswer: {answer}"
        return await self._ask("text_check.txt", (content,), max_tokens, lambda reply: _read_verdict(reply, "keep"))

    async def check_sight(self, frames: Content, question: str, answer: str, max_tokens: int) -> Verdict:
        """How well the frames support the answer.

        Raises:
            EndpointError: no reply could be read.
        """
        content = (*frames, f"\n\nQuestion: {question}\nAnswer: {answer}")
        return await self._ask("visual_check.txt", content, max_tokens, lambda reply: _read_verdict(reply, "score"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def _ask(
        self, prompt: str, content: Content, max_tokens: int, read: Callable[[str], Result], **values: int
    ) -> Result:
        system = instructions(prompt, **values)
        user = await asyncio.to_thread(to_chat_message, Message("user", content), self._jpeg_quality)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}, user]

        async def attempt() -> Result:
            body = {"model": model, "messages": messages, "temperature": 0.0, "max_tokens": max_tokens}
            completion = read_completion(await exchange.chat_completion(body))
            reply = completion.text
            try:
                if completion.finish_reason == "length":
                    raise ValueError(f"it is cut at its limit of {max_tokens} tokens")
                return read(without_reasoning(reply))
            except ValueError as error:
                # Asked the same, a model says the same again.
                again = f"That cannot be used: {error}. Reply again, in the form asked for."
                messages[2:] = [{"role": "assistant", "content": reply}, {"role": "user", "content": again}]
                raise AttemptFailed(f"unusable reply: {error}: {reply[:200]!r}") from error

        async with self._client.exchange() as exchange:
            model = await exchange.model()
            return await exchange.retried(attempt)


def prompts_digest() -> str:
    """Differs where any of the packaged prompts does."""
    return digest(*(instructions(name) for name in PROMPT_FILES))


def instructions(prompt: str, **values: int) -> str:
    """A packaged prompt with its placeholders filled in."""
    text = read_prompt(__package__, prompt, None)
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


# Readers raise ValueError for what cannot be used; its text goes back to the model.


def _read_caption(reply: str) -> str:
    if not reply.strip():
        raise ValueError("it is empty")
    return reply.strip()


def _read_questions(reply: str, num_parts: int) -> list[Question]:
    found = list(json_objects(reply))
    if not found and "[]" in "".join(reply.split()):
        return []
    questions = []
    for item in found:
        question, answer = item.get("question"), item.get("answer")
        first, last = item.get("first_part"), item.get("last_part")
        if not (isinstance(question, str) and isinstance(answer, str) and question.strip() and answer.strip()):
            continue
        if type(first) is int and type(last) is int and 1 <= first <= last <= num_parts:
            questions.append(Question(question.strip(), answer.strip(), first, last))
    if not questions:
        raise ValueError(
            "there is no question in it with question, answer, first_part and last_part, "
            f"parts being numbers from 1 to {num_parts}"
        )
    return questions


def _read_verdict(reply: str, field: str) -> Verdict:
    stated = [found for found in json_objects(reply) if field in found]
    if not stated:
        raise ValueError(f"there is no JSON object with the field {field!r} in it")
    value = stated[-1][field]
    wanted = bool if field == "keep" else (int, float)
    if not isinstance(value, wanted) or (field != "keep" and isinstance(value, bool)) or not 0 <= value <= 1:
        raise ValueError(f"{field} is {value!r:.80}")
    return Verdict(float(value), str(stated[-1].get("reason", "")))
