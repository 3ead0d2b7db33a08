"""Tokens without a model: a byte is a token, and so is each special one. The server is a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import SimpleNamespace
from typing import Any

IMAGE, VIDEO, END, START, VISION_START, VISION_END = range(256, 262)
SPECIAL = {
    "<|image_pad|>": IMAGE,
    "<|video_pad|>": VIDEO,
    "<|im_end|>": END,
    "<|im_start|>": START,
    "<|vision_start|>": VISION_START,
    "<|vision_end|>": VISION_END,
}
NAMES = {token: name for name, token in SPECIAL.items()}


def encode(text: str) -> list[int]:
    """As no tokenizer of a model does: a special token that is spelt stays a text."""
    return list(text.encode("utf-8", "replace"))


def decode(tokens: Sequence[int]) -> str:
    pieces = (NAMES[token].encode() if token in NAMES else bytes([token]) for token in tokens)
    return b"".join(pieces).decode("utf-8", "replace")


class ByteBuilder:
    """verl's builder for a model of Qwen's template, as far as `TokenCounter` asks it."""

    tokenizer: Any = None

    def build_initial_tokens(self, messages: list[dict], *, images: list[Any] | None = None) -> list[int]:
        return [token for message in messages for token in self._message(message)] + self._header()

    def merge_context_tokens(self, previous: list[dict], updated: list[dict], runtime: list[int]) -> Any:
        newline = encode("\n") if runtime[-1:] == [END] else []
        added = self.tokenize_context_incremental_messages(previous, updated)
        return SimpleNamespace(token_ids=[*runtime, *newline, *added])

    def tokenize_context_incremental_messages(self, previous: list[dict], updated: list[dict]) -> list[int]:
        return [token for message in updated for token in self._message(message)] + self._header()

    def _message(self, message: dict) -> list[int]:
        picture = [VISION_START, IMAGE, VISION_END]
        parts = [picture if item["type"] == "image" else encode(item["text"]) for item in message["content"]]
        return [START, *encode(f"{message['role']}\n"), *chain.from_iterable(parts), END, *encode("\n")]

    def _header(self) -> list[int]:
        return [START, *encode("assistant\n")]


@dataclass
class ScriptedServer:
    """verl's client of an inference server, which returns the tokens of a script."""

    script: list[list[int]]
    cut_at_stop: bool = True
    returned: list[list[int]] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)

    async def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], **options: Any) -> Any:
        tokens = self.script.pop(0) if self.script else [*encode("nothing more"), END]
        tokens = tokens[: sampling_params["max_tokens"]]
        self.prompts.append(prompt_ids)
        self.returned.append(tokens)
        logprobs = [-0.5] * len(tokens)
        return SimpleNamespace(token_ids=tokens, log_probs=logprobs, extra_fields={"global_steps": len(self.returned)})
