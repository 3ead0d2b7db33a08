"""What a tool asks of a model, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from verl_video_tools.core.frames import FrameRecord
from verl_video_tools.core.messages import Content


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What one rollout may ask of its tools' model.

    Attributes:
        calls: questions.
    """

    calls: int = 8


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a tool's model replied.

    Attributes:
        text: never empty; without the model's reasoning.
        model: its name.
        prompt_tokens, completion_tokens: as the endpoint counts them; 0 where it does not.
        cut: the reply ended at its limit of tokens.
    """

    text: str
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False


class ToolModel(Protocol):
    """A model that tools ask: a captioner, a reader of text in frames, a sub-agent. Not the policy, and not trained."""

    @property
    def limits(self) -> ModelLimits:
        """What one rollout may ask of it."""
        ...

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        """Its reply to one user message of texts and frames.

        Raises:
            CallRejected: `no_reply`, where the model is there and gives none that can be used; in a rollout also
                `model_budget`, where the rollout has asked all that it may.
            ToolModelError: it cannot be asked.
        """
        ...


@dataclass
class ModelCall:
    """One exchange with a tool's model, as the record of its call holds it."""

    request: str
    """The message as text, an image mark for each frame."""
    frames: list[FrameRecord] = field(default_factory=list)
    """In their order in the message."""
    reply: str | None = None
    """None where there was none; `error` then says why, as ``"<code>: <reason>"``."""
    error: str | None = None
    model: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: float = 0.0
    cut: bool = False
