"""What a step consists of: rollouts of a method on videos of a kind, in tokens and images.

The arithmetic of tokens is `rollout.cost`'s. Where no tokenizer is at hand, its text is counted by `EstimatedBuilder`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from verl_video_tools.core.types import Method, PixelEnvelope, RolloutLimits, Sample, VideoInfo
from verl_video_tools.planner.constants import constant
from verl_video_tools.planner.recipes import RunOptions
from verl_video_tools.rollout.cost import estimate_cost, planned_images
from verl_video_tools.rollout.tokens import ModelTokens, TokenCounter

TEXT, VISION, IMAGE = 0, 1, 2
PIECE = re.compile(r"\d|[^\W\d]{1,6}|[^\w\s]|\n")
QUESTION = "What happens after the man in the blue shirt has closed the door?\n" + "\n".join(
    f"{letter}. He sits down at the table and reads a letter." for letter in "ABCD"
)


class EstimatedBuilder:
    """Stands for verl's token builder without a tokenizer: digits and signs alone, words by six characters.

    Qwen's tokenizer takes digits alone and most English words whole, so this is somewhat too much.
    """

    tokenizer = None

    def build_initial_tokens(self, messages: list[dict], *, images: list[Any] | None = None) -> list[int]:
        """Ids that are right in number: header and end of each message, and the header of the assistant's turn."""
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
    """Counts of a model whose tokenizer is not at hand, exact in images and estimated in text.

    Args:
        factor: sides of images are multiples of it, in pixels.
    """
    envelope = PixelEnvelope(factor, options.min_pixels, options.max_pixels)
    return ModelTokens(None, TokenCounter(EstimatedBuilder(), IMAGE, factor), envelope)


@dataclass(frozen=True)
class Workload:
    """Of one rollout, and of a step.

    Attributes:
        initial_tokens, call_tokens: all that is written with the frames; `*_image_tokens` are those of images alone.
            Where the rollouts of a group see different initial frames, `initial_*` is of the dearest one, which limits
            and the peak of an update count with, and `mean_initial_*` the mean of a group, which sums count with.
        max_calls: calls of a rollout that fit into the limits, of the `allowed_calls` that its turns allow.
        longest_tokens: what the limits allow, prompt and response.
        mean_calls, turn_tokens: what time is modelled by.
        groups, rollouts: questions of a step, and rollouts of a question.
        is_shared: the rollouts of a group see the same initial frames.
        group_frames: different initial frames of a group, each of which is decoded once.
    """

    initial_frames: int
    initial_tokens: int
    initial_image_tokens: int
    call_frames: int
    call_tokens: int
    call_image_tokens: int
    max_calls: int
    mean_calls: float
    turn_tokens: float
    longest_tokens: int
    groups: int
    rollouts: int
    is_shared: bool
    mean_initial_frames: float
    mean_initial_tokens: float
    mean_initial_image_tokens: float
    group_frames: int
    allowed_calls: int

    @property
    def fullest_tokens(self) -> int:
        """Of a rollout that makes all calls that fit, and writes long turns."""
        written = (self.max_calls + 1) * int(constant("full_turn_tokens"))
        return min(self.longest_tokens, self.initial_tokens + self.max_calls * self.call_tokens + written)

    @property
    def mean_tokens(self) -> float:
        """Of a whole rollout, prompt included."""
        return self.mean_initial_tokens + self.mean_calls * self.call_tokens + (self.mean_calls + 1) * self.turn_tokens

    @property
    def mean_image_tokens(self) -> float:
        return self.mean_initial_image_tokens + self.mean_calls * self.call_image_tokens

    @property
    def longest_image_tokens(self) -> int:
        return self.initial_image_tokens + self.max_calls * self.call_image_tokens

    @property
    def initial_copies(self) -> int:
        """Different sets of initial frames of a group."""
        return 1 if self.is_shared else self.rollouts


def plan_workload(method: Method, info: VideoInfo, tokens: ModelTokens, options: RunOptions) -> Workload:
    """The rollouts of a step on videos like `info`."""
    turn_tokens = int(constant("mean_turn_tokens"))
    cost = estimate_cost(method, info, tokens, question=QUESTION, turn_tokens=turn_tokens, group_size=options.rollouts)
    first, call = cost.initial_frames, cost.call
    limits = RolloutLimits(options.prompt_length, options.response_length, method.recipe_budget.images)
    calls = cost.calls_that_fit(limits)
    members = [method.for_session(number, options.rollouts, validate=False) for number in range(options.rollouts)]
    distinct = {id(member): member for member in members}.values()
    requests = [member.plan_initial_frames(info, _sample(), tokens.envelope) for member in distinct]
    return Workload(
        initial_frames=first.num_frames,
        initial_tokens=first.tokens,
        initial_image_tokens=first.num_frames * first.frame_tokens,
        call_frames=call.num_frames if call else 0,
        call_tokens=call.tokens if call else 0,
        call_image_tokens=call.num_frames * call.frame_tokens if call else 0,
        max_calls=calls,
        mean_calls=constant("mean_fraction") * calls,
        turn_tokens=turn_tokens,
        longest_tokens=options.prompt_length + options.response_length,
        groups=options.batch_size,
        rollouts=options.rollouts,
        is_shared=_all_equal(requests),
        mean_initial_frames=fmean(look.num_frames for look in cost.group),
        mean_initial_tokens=fmean(look.tokens for look in cost.group),
        mean_initial_image_tokens=fmean(look.num_frames * look.frame_tokens for look in cost.group),
        group_frames=len({image.record.index for look in requests for image in planned_images(look, info)}),
        allowed_calls=cost.max_turns - 1 if call else 0,
    )


def _sample() -> Sample:
    return Sample(question=QUESTION, ground_truth="A", video_path="video.mp4", question_type="mc")


def _all_equal(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)
