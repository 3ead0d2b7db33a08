"""Chat models for tests, behind the server of `judge_server`: they write what a script says for the question asked."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image

from tests.judge_server import MODEL, Reply


def chat_reply(text: str, finish_reason: str = "stop", **choice: Any) -> Reply:
    message = {"role": "assistant", "content": text}
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, **choice}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 7, "total_tokens": 8},
    }
    return Reply(json.dumps(body).encode())


def texts_of(message: Mapping[str, Any]) -> str:
    """A message's text, with `<image>` for each picture."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] if part["type"] == "text" else "<image>" for part in content)


def pictures_of(message: Mapping[str, Any]) -> list[Image.Image]:
    """A message's pictures, decoded."""
    parts = [] if isinstance(message["content"], str) else message["content"]
    pictures = []
    for part in parts:
        if part["type"] == "image_url":
            header, _, data = part["image_url"]["url"].partition(",")
            picture = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
            picture.load()
            assert header == f"data:image/{str(picture.format).lower()};base64"
            pictures.append(picture)
    return pictures


def scripted(scripts: Mapping[str, Sequence[str]], num_given: int = 0) -> Callable[[dict[str, Any]], Reply]:
    """A model that writes the turns of a question's script, as vLLM sends them.

    Args:
        scripts: turns by question; the question is looked for in the first user message.
        num_given: assistant turns that a request has before the script's first.
    """

    def reply(request: dict[str, Any]) -> Reply:
        messages = request["messages"]
        asked = texts_of(next(message for message in messages if message["role"] == "user"))
        (turns,) = [turns for question, turns in scripts.items() if question in asked]
        return chat_reply(turns[sum(message["role"] == "assistant" for message in messages) - num_given])

    return reply


REASONING_SHAPES = ("in the text", "opened by the template", "a field", "an older field")
"""How native reasoning comes: `<think>...</think>`, `...</think>`, `reasoning`, `reasoning_content`."""


def thinking(
    speaks: Callable[[dict[str, Any]], Reply], shape: str, reasoning: str
) -> Callable[[dict[str, Any]], Reply]:
    """The same model, but it reasons before it says the same; stop strings end a reasoning, too, as with vLLM."""

    def reply(request: dict[str, Any]) -> Reply:
        body = json.loads(speaks(request).body or b"")
        (choice,) = body["choices"]
        message, said = choice["message"], choice["message"]["content"]
        thought = f"\n{reasoning}\n"
        stopped = [string for string in request.get("stop", []) if string in thought]
        if stopped:
            thought = thought[: thought.index(stopped[0]) + len(stopped[0])]
            choice["stop_reason"] = stopped[0]
        if shape in ("a field", "an older field"):
            message["reasoning" if shape == "a field" else "reasoning_content"] = thought
            message["content"] = None if stopped else f"\n\n{said}"
        else:
            opening = "<think>" if shape == "in the text" else ""
            message["content"] = f"{opening}{thought}" if stopped else f"{opening}{thought}</think>\n\n{said}"
        return Reply(json.dumps(body).encode())

    return reply
