"""Whether a message fits into the sequences that a token-level rollout is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_video_tools.core.types import Content, Message, RolloutLimits, StopReason, content_images
from verl_video_tools.rollout.sequences import RolloutTokens


@dataclass(frozen=True)
class TokenBudget:
    """The `BudgetCheck` of a token-level rollout: exact token counts, before a pixel is decoded.

    Args:
        prompt_length: tokens that verl reserves for the prompt of a sequence.
        response_length: tokens for everything after it: sampled turns, and observations between them.
        max_images: images per sequence that the inference engine takes; None if it has no limit.
    """

    tokens: RolloutTokens
    prompt_length: int
    response_length: int
    max_images: int | None = None

    def refuses_prompt(self, messages: Sequence[Message]) -> StopReason | None:
        num_images = sum(len(content_images(message.content)) for message in messages)
        return self._refuses(RolloutLimits(self.tokens.counter.prompt(messages), 0, num_images))

    def refuses_observation(self, content: Content) -> StopReason | None:
        return self._refuses(self.tokens.lengths_with(content))

    def tokens_left(self) -> int:
        return self.response_length - len(self.tokens.current.response_ids)

    def tokens_apart(self, messages: Sequence[Message]) -> int:
        """Tokens that the reply to a request of its own may take, which no sequence holds; 0 if it does not fit."""
        num_images = sum(len(content_images(message.content)) for message in messages)
        if self.max_images is not None and num_images > self.max_images:
            return 0
        left = self.prompt_length + self.response_length - self.tokens.counter.prompt(messages)
        return max(0, min(left, self.response_length))

    def _refuses(self, lengths: RolloutLimits) -> StopReason | None:
        if lengths.prompt_tokens > self.prompt_length:
            return StopReason.PROMPT_BUDGET
        if lengths.response_tokens + 1 > self.response_length:  # one to answer with
            return StopReason.RESPONSE_BUDGET
        if self.max_images is not None and lengths.images > self.max_images:
            return StopReason.IMAGE_BUDGET
        return None
