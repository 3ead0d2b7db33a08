"""The rollouts of one step in tokens and images: `rollout.cost` with the options of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from verl_video_tools.core.types import (
    Content,
    Message,
    Method,
    PixelEnvelope,
    RolloutLimits,
    VideoInfo,
    content_images,
    content_text,
)
from verl_video_tools.planner.options import RunOptions
from verl_video_tools.rollout.cost import estimate_cost
from verl_video_tools.rollout.tokens import ModelTokens, TokenCounter
from verl_video_tools.video import image_tokens

HOUR = VideoInfo(3600.0, 108_000, 30.0, 1920, 1080)
"""The video of a plan without rows."""
TURN_TOKENS = 256
"""Tokens that the policy writes in a turn, for the number of calls that fit. Assumed."""
TURN_HEADER_TOKENS, MESSAGE_TOKENS = 3, 5
"""Of the chat template."""
PIECE = re.compile(r"\d|[^\W\d]{1,6}|[^\w\s]|\n")
QUESTION = "What happens after the man in the blue shirt has closed the door?\n" + "\n".join(
    f"{letter}. He sits down at the table and reads a letter." for letter in "ABCD"
)


class EstimatedCounter(TokenCounter):
    """Counts tokens without a tokenizer: exactly for images, estimated for text.

    Each digit and sign is a token, and each six letters of a word. Qwen's tokenizer keeps most English words whole, so
    this is somewhat too much.
    """

    def prompt(self, messages: Sequence[Message]) -> int:
        return TURN_HEADER_TOKENS + sum(self._message(message.content) for message in messages)

    def observation(self, content: Content) -> int:
        return TURN_HEADER_TOKENS + self._message(content)

    def _message(self, content: Content) -> int:
        records = [image.record for image in content_images(content)]
        images = sum(image_tokens(record.width, record.height, self.factor) + 2 for record in records)
        return MESSAGE_TOKENS + images + len(PIECE.findall(content_text(content)))


def estimated_tokens(envelope: PixelEnvelope) -> ModelTokens:
    """Of a model whose tokenizer is not there. The envelope is that of its images."""
    no_builder: Any = None
    return ModelTokens(None, EstimatedCounter(no_builder, 0, envelope.factor), envelope)


@dataclass(frozen=True)
class Workload:
    """One step.

    Where the rollouts of a group see different initial frames, `initial_*` is the largest of them and
    `mean_initial_image_tokens` their mean.

    Attributes:
        groups, rollouts: questions of the step, rollouts per question.
        is_shared: the rollouts of a group see the same initial frames.
        initial_tokens, call_tokens: images and text. `*_image_tokens` count images alone.
        max_calls: calls of the largest size that fit into a rollout's limits, of `allowed_calls` that its turns allow.
        longest_tokens: the limit of prompt and response.
    """

    groups: int
    rollouts: int
    is_shared: bool
    initial_frames: int
    initial_tokens: int
    initial_image_tokens: int
    mean_initial_image_tokens: float
    call_frames: int
    call_tokens: int
    call_image_tokens: int
    max_calls: int
    allowed_calls: int
    longest_tokens: int

    @property
    def longest_image_tokens(self) -> int:
        return self.initial_image_tokens + self.max_calls * self.call_image_tokens

    @property
    def group_image_tokens(self) -> float:
        """Of all images of a question's rollouts with all calls that fit. Shared initial frames count once."""
        initial = (1 if self.is_shared else self.rollouts) * self.mean_initial_image_tokens
        return initial + self.rollouts * self.max_calls * self.call_image_tokens

    @property
    def step_image_tokens(self) -> float:
        return self.groups * self.group_image_tokens


def plan_workload(method: Method, info: VideoInfo, tokens: ModelTokens, options: RunOptions) -> Workload:
    """The rollouts of a step on videos like `info`."""
    cost = estimate_cost(method, info, tokens, question=QUESTION, turn_tokens=TURN_TOKENS, group_size=options.rollouts)
    first, call = cost.initial_frames, cost.call
    limits = RolloutLimits(options.prompt_length, options.response_length, method.recipe_budget.images)
    return Workload(
        groups=options.batch_size,
        rollouts=options.rollouts,
        is_shared=len(set(cost.group)) == 1,
        initial_frames=first.num_frames,
        initial_tokens=first.tokens,
        initial_image_tokens=first.num_frames * first.frame_tokens,
        mean_initial_image_tokens=fmean(frames.num_frames * frames.frame_tokens for frames in cost.group),
        call_frames=call.num_frames if call else 0,
        call_tokens=call.tokens if call else 0,
        call_image_tokens=call.num_frames * call.frame_tokens if call else 0,
        max_calls=cost.calls_that_fit(limits),
        allowed_calls=cost.max_turns - 1 if call else 0,
        longest_tokens=options.prompt_length + options.response_length,
    )
