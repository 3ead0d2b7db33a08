"""Tokens without a model: each byte of a text is a token, laid out as Qwen's chat template lays messages out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

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
