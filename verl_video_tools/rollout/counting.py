"""Token counts by a model's own processor and chat template, outside a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_video_tools.core.types import PixelEnvelope
from verl_video_tools.rollout.tokens import TokenCounter


@dataclass(frozen=True)
class ModelTokens:
    """What a model makes of messages.

    Attributes:
        tokenizer: its text tokenizer.
        counter: lengths of messages, by verl's builder for the model.
        envelope: sizes of pictures that its processor leaves untouched.
    """

    tokenizer: Any
    counter: TokenCounter
    envelope: PixelEnvelope
