"""A server that is a script of tokens, special ones included; `byte_tokens` says what they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.fuzz.byte_tokens import END, encode


@dataclass
class ScriptedServer:
    """verl's client of an inference server, which returns the tokens of a script."""

    script: list[list[int]]
    returned: list[list[int]] = field(default_factory=list)

    async def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], **options: Any) -> Any:
        tokens = self.script.pop(0) if self.script else [*encode("nothing more"), END]
        tokens = tokens[: sampling_params["max_tokens"]] or [END]  # no engine ends a turn without any token
        self.returned.append(tokens)
        logprobs = [-0.5] * len(tokens)
        versions = {"global_steps": len(self.returned)}
        return SimpleNamespace(token_ids=tokens, log_probs=logprobs, stop_reason="completed", extra_fields=versions)
