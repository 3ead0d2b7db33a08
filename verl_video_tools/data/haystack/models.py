"""The models that are asked, and how their replies are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from verl_video_tools.core.json_text import json_objects
from verl_video_tools.core.prompt_files import load_prompt
from verl_video_tools.core.reasoning import without_reasoning
from verl_video_tools.core.types import Content, Message
from verl_video_tools.data.haystack.log import digest
from verl_video_tools.services.endpoint import EndpointClient
from verl_video_tools.services.endpoint.asking import UnusableReply, usable_reply
from verl_video_tools.services.endpoint.chat import Completion, to_chat_message

Result = TypeVar("Result")

PROMPT_FILES = ("caption.txt", "questions.txt", "text_check.txt", "visual_check.txt")


@dataclass(frozen=True)
class Models:
    """Who is asked: `captioner` and `checker` see images, `writer` reads and writes.

    Attributes:
        jpeg_quality: of images, 1 to 95; None sends PNG.
    """

    captioner: EndpointClient
    writer: EndpointClient
    checker: EndpointClient
    jpeg_quality: int | None = None

    async def ask(
        self,
        model: EndpointClient,
        prompt: str,
        content: Content,
        max_tokens: int,
        read: Callable[[str], Result],
        **values: int,
    ) -> Result:
        """What `read` makes of a model's reply, without native reasoning.

        Args:
            prompt: one of `PROMPT_FILES`; `values` fill its placeholders.
            max_tokens: of the reply.
            read: raises ValueError for what cannot be used; its text goes back to the model.

        Raises:
            EndpointError: no reply could be read.
        """

        def read_whole(completion: Completion) -> Result:
            try:
                if completion.finish_reason == "length":
                    raise ValueError(f"it is cut at its limit of {max_tokens} tokens")
                return read(without_reasoning(completion.text))
            except ValueError as error:
                raise UnusableReply(
                    f"unusable reply: {error}: {completion.text[:200]!r}",
                    f"That cannot be used: {error}. Reply again, in the form asked for.",
                ) from error

        user = await asyncio.to_thread(to_chat_message, Message("user", content), self.jpeg_quality)
        system = {"role": "system", "content": instructions(prompt, **values)}
        found, _ = await usable_reply(model, [system, user], read_whole, max_tokens)
        return found


def prompts_digest() -> str:
    """Differs where any of the packaged prompts does."""
    return digest(*(instructions(name) for name in PROMPT_FILES))


def instructions(prompt: str, **values: int) -> str:
    """A packaged prompt with its placeholders filled in."""
    return load_prompt(__package__, prompt, None, **values)


def read_caption(reply: str) -> str:
    """Raises ValueError where there is none."""
    if not reply.strip():
        raise ValueError("it is empty")
    return reply.strip()


def read_questions(reply: str, num_parts: int) -> list[dict[str, Any]]:
    """Questions about described parts, perhaps none: `question`, `answer`, and the numbers from 1 of the first and the
    last part that answer it, `first_part` and `last_part`.

    Raises:
        ValueError: the reply neither holds such a question nor says that there is none.
    """
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
            texts = {"question": question.strip(), "answer": answer.strip()}
            questions.append({**texts, "first_part": first, "last_part": last})
    if not questions:
        raise ValueError(
            "there is no question in it with question, answer, first_part and last_part, "
            f"parts being numbers from 1 to {num_parts}"
        )
    return questions


def read_verdict(reply: str, field: str) -> dict[str, Any]:
    """What a check says: its `score`, 0 to 1, from a number or from `keep` (true or false), and its `reason`.

    Raises:
        ValueError: there is no such field, or it is out of range.
    """
    stated = [found for found in json_objects(reply) if field in found]
    if not stated:
        raise ValueError(f"there is no JSON object with the field {field!r} in it")
    value = stated[-1][field]
    wanted = bool if field == "keep" else (int, float)
    if not isinstance(value, wanted) or (field != "keep" and isinstance(value, bool)) or not 0 <= value <= 1:
        raise ValueError(f"{field} is {value!r:.80}")
    return {"score": float(value), "reason": str(stated[-1].get("reason", ""))}
