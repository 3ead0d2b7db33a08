"""The rollouts of one step in tokens and images: `rollout.cost` with the options of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from verl_video_tools.core.types import Method, PixelEnvelope, RolloutLimits, Sample, VideoInfo
from verl_video_tools.planner.options import RunOptions
from verl_video_tools.rollout.cost import estimate_cost
from verl_video_tools.rollout.tokens import ModelTokens, TokenCounter

TURN_TOKENS = 256
"""Tokens that the policy writes in a turn, for the number of calls that fit. Assumed."""
TEXT, VISION, IMAGE = 0, 1, 2
PIECE = re.compile(r"\d|[^\W\d]{1,6}|[^\w\s]|\n")
QUESTION = "What happens after the man in the blue shirt has closed the door?\n" + "\n".join(
    f"{letter}. He sits down at the table and reads a letter." for letter in "ABCD"
)


class EstimatedBuilder:
    """Takes the place of verl's token builder where there is no tokenizer.

    Each digit and sign is a token, and each six letters of a word. Qwen's tokenizer keeps most English words whole, so
    this is somewhat too much.
    """

    tokenizer = None

    def build_initial_tokens(self, messages: list[dict], *, images: list[Any] | None = None) -> list[int]:
        """As many ids as the messages have, with the header of the assistant's turn."""
        return [token for message in messages for token in self._message(message)] + [TEXT] * 3

    def tokenize_context_incremental_messages(
        self, previous_messages: list[dict], updated_messages: list[dict]
    ) -> list[int]:
        return self.build_initial_tokens(updated_messages)

    def merge_context_tokens(
        self, previous_messages: list[dict], updated_messages: list[dict], runtime_token_ids: list[int]
    ) -> Any:
        raise NotImplementedError("a plan appends to no sequence")

    def _message(self, message: dict) -> list[int]:
        ids = [TEXT] * 5
        for item in message["content"]:
            if item["type"] == "image":
                ids += [VISION, IMAGE, VISION]
            else:
                ids += [TEXT] * len(PIECE.findall(item["text"]))
        return ids


def estimated_tokens(factor: int, options: RunOptions) -> ModelTokens:
    """Counts tokens without a tokenizer: exactly for images, estimated for text.

    Args:
        factor: sides of images are multiples of it, in pixels.
    """
    envelope = PixelEnvelope(factor, options.min_pixels, options.max_pixels)
    return ModelTokens(None, TokenCounter(EstimatedBuilder(), IMAGE, factor), envelope)


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
    def step_image_tokens(self) -> float:
        """Of all images of a step with all calls that fit. Shared initial frames count once per group."""
        initial = (1 if self.is_shared else self.rollouts) * self.mean_initial_image_tokens
        return self.groups * (initial + self.rollouts * self.max_calls * self.call_image_tokens)


def plan_workload(method: Method, info: VideoInfo, tokens: ModelTokens, options: RunOptions) -> Workload:
    """The rollouts of a step on videos like `info`."""
    cost = estimate_cost(method, info, tokens, question=QUESTION, turn_tokens=TURN_TOKENS, group_size=options.rollouts)
    first, call = cost.initial_frames, cost.call
    limits = RolloutLimits(options.prompt_length, options.response_length, method.recipe_budget.images)
    members = [method.for_session(number, options.rollouts, validate=False) for number in range(options.rollouts)]
    sample = Sample(question=QUESTION, ground_truth="A", video_path="video.mp4", question_type="mc")
    requests = [
        member.plan_initial_frames(info, sample, tokens.envelope)
        for member in {id(member): member for member in members}.values()
    ]
    return Workload(
        groups=options.batch_size,
        rollouts=options.rollouts,
        is_shared=all(request == requests[0] for request in requests),
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
