"""Tokens without a model: each byte of a text is a token, laid out as Qwen's chat template lays messages out.

Enough for what a method decides: which texts are sampled, which images stand where. `--processor` takes a model's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import Any

from verl_video_tools.checks.world import QWEN
from verl_video_tools.core.types import Content, Message, PixelEnvelope, content_images, content_text
from verl_video_tools.rollout.tokens import TokenCounter
from verl_video_tools.video import image_tokens

IMAGE, VIDEO, END, START, VISION_START, VISION_END = range(256, 262)
"""Finds of the fuzzer hold these numbers."""
_NAMES = {
    IMAGE: "<|image_pad|>",
    VIDEO: "<|video_pad|>",
    END: "<|im_end|>",
    START: "<|im_start|>",
    VISION_START: "<|vision_start|>",
    VISION_END: "<|vision_end|>",
}
_WORDS = re.compile(r"[^\W\d_]+|\d|[^\w\s]+|_+|\n+")
_LETTERS_OF_A_TOKEN = 7


def encode(text: str) -> list[int]:
    """The bytes of a text; a special token that it spells stays a text."""
    return list(text.encode("utf-8", "replace"))


def decode(tokens: Sequence[int]) -> str:
    pieces = (_NAMES[token].encode() if token in _NAMES else bytes([token]) for token in tokens)
    return b"".join(pieces).decode("utf-8", "replace")


class ByteBuilder:
    """verl's token builder, as far as `TokenCounter` asks it."""

    tokenizer: Any = None

    def build_initial_tokens(self, messages: list[dict], *, images: list[Any] | None = None) -> list[int]:
        return [token for message in messages for token in self._message(message)] + self._header()

    def merge_context_tokens(self, previous: list[dict], updated: list[dict], runtime: list[int]) -> Any:
        newline = encode("\n") if runtime[-1:] == [END] else []
        return SimpleNamespace(
            token_ids=[*runtime, *newline, *self.tokenize_context_incremental_messages(previous, updated)]
        )

    def tokenize_context_incremental_messages(self, previous: list[dict], updated: list[dict]) -> list[int]:
        return [token for message in updated for token in self._message(message)] + self._header()

    def _message(self, message: dict) -> list[int]:
        picture = [VISION_START, IMAGE, VISION_END]
        parts = [picture if item["type"] == "image" else encode(item["text"]) for item in message["content"]]
        return [START, *encode(f"{message['role']}\n"), *chain.from_iterable(parts), END, *encode("\n")]

    def _header(self) -> list[int]:
        return [START, *encode("assistant\n")]


def byte_counter() -> TokenCounter:
    return TokenCounter(ByteBuilder(), IMAGE, QWEN.factor)


def estimated_tokens(messages: Sequence[Message], envelope: PixelEnvelope = QWEN) -> int:
    """About as many tokens as Qwen's tokenizer makes of messages: a word one for every seven letters, a digit or a run
    of signs one each, an image its own and two around it."""
    return sum(4 + _of_content(message.content, envelope) for message in messages) + 3


def _of_content(content: Content, envelope: PixelEnvelope) -> int:
    words = _WORDS.findall(content_text(tuple(part for part in content if isinstance(part, str))))
    texts = sum(-(-len(word) // _LETTERS_OF_A_TOKEN) if word[0].isalpha() else 1 for word in words)
    images = (image_tokens(part.record.width, part.record.height, envelope.factor) for part in content_images(content))
    return texts + sum(tokens + 2 for tokens in images)


@dataclass
class ScriptedServer:
    """verl's client of an inference server, which returns the tokens of texts. Like an engine, it never returns more
    than `max_tokens`, and ends a turn at its first stop string."""

    turns: list[str]

    def __post_init__(self) -> None:
        self.returned: list[list[int]] = []
        self.sampling_params: list[dict[str, Any]] = []

    async def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], **options: Any) -> Any:
        text = self.turns.pop(0) if self.turns else "nothing more"
        ends = [text.find(stop) + len(stop) for stop in sampling_params.get("stop", ()) if stop in text]
        tokens = encode(text[: min(ends)]) if ends else [*encode(text), END]
        tokens = tokens[: sampling_params["max_tokens"]]
        self.returned.append(tokens)
        self.sampling_params.append(dict(sampling_params))
        return SimpleNamespace(
            token_ids=tokens, log_probs=[-0.5] * len(tokens), stop_reason="completed", extra_fields={}
        )
