"""What rollouts of a method take on a kind of video, in tokens and images, and what the method's recipe reserves.

Counted by the model's own processor and chat template on a prompt and an observation as the method writes them; nothing
is decoded, and there need be no video.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import (
    CallRecord,
    Content,
    FrameRecord,
    FrameRequest,
    ImagePart,
    Message,
    Method,
    PixelEnvelope,
    RolloutLimits,
    Sample,
    ToolOutcome,
    VideoInfo,
    content_images,
    content_text,
)
from verl_video_tools.rollout.tokens import ModelTokens, TokenCounter
from verl_video_tools.video import image_tokens

GROUP_SIZE = 8
"""Rollouts of a group: where they differ by design (FrameMind's ladder), the most expensive of so many counts."""


@dataclass(frozen=True)
class FramesCost:
    """Frames shown at once.

    Attributes:
        frame_tokens: of one image.
        tokens: of all that is written with them: system prompt and question, or the whole observation.
    """

    num_frames: int
    width: int
    height: int
    frame_tokens: int
    tokens: int


@dataclass(frozen=True)
class CostEstimate:
    """What a rollout with one call in each turn but the last takes at most.

    Attributes:
        call: the most expensive one; None where the method has none, or does not say.
        turn_tokens: what the policy is taken to write in a turn.
        needed: for all turns.
        reserved: by the method's recipe.
        group: initial frames of each rollout of a group; `initial_frames` is the most expensive of them.
    """

    method: str
    initial_frames: FramesCost
    call: FramesCost | None
    max_turns: int
    turn_tokens: int
    needed: RolloutLimits
    reserved: RolloutLimits
    group: tuple[FramesCost, ...] = ()

    def calls_that_fit(self, limits: RolloutLimits) -> int:
        """Calls of a rollout within limits and turns; 0 where the initial frames do not fit or nothing can be
        called."""
        first, call = self.initial_frames, self.call
        if call is None or first.tokens > limits.prompt_tokens:
            return 0
        by_tokens = (limits.response_tokens - self.turn_tokens) // (self.turn_tokens + call.tokens)
        by_images = (limits.images - first.num_frames) // call.num_frames
        return max(0, min(by_tokens, by_images, self.max_turns - 1))


def estimate_cost(
    method: Method,
    info: VideoInfo,
    model: ModelTokens,
    *,
    question: str,
    turn_tokens: int,
    group_size: int = GROUP_SIZE,
) -> CostEstimate:
    """What a rollout of a method takes on a video.

    Args:
        info: of the video, which need not exist.
        question: whole text, with options.
        turn_tokens: what the policy writes in a turn.
        group_size: rollouts of a group.

    Raises:
        UsageError: `turn_tokens` is below 1.
    """
    if turn_tokens < 1:
        raise UsageError(f"a turn has at least 1 token, got {turn_tokens}")
    sample = Sample(question=question, ground_truth="A", video_path="video.mp4", question_type="mc")
    members = [method.for_session(number, group_size, validate=False) for number in range(group_size)]
    # Most methods give the same config to every rollout.
    distinct = {id(member): member for member in members}
    costs = {key: _initial_frames(member, info, sample, model) for key, member in distinct.items()}
    group = tuple(costs[id(member)] for member in members)
    first = max(group, key=lambda cost: cost.tokens)
    call = _call(method, info, sample, model)
    num_calls = 0 if call is None else method.max_turns - 1
    needed = RolloutLimits(
        prompt_tokens=first.tokens,
        response_tokens=(num_calls + 1) * turn_tokens + num_calls * (call.tokens if call else 0),
        images=first.num_frames + num_calls * (call.num_frames if call else 0),
    )
    return CostEstimate(method.name, first, call, method.max_turns, turn_tokens, needed, method.recipe_budget, group)


def serving_limits(method: Method, usual: Method, envelope: PixelEnvelope) -> RolloutLimits:
    """What a server of the method is given: its recipe's, and what its initial frames take beyond the defaults'.

    Args:
        usual: the method with its defaults, for which the recipe's budget is made.

    Both are counted for an hour of large video. No tokenizer is asked: that a character of text takes a token errs on
    the safe side.
    """
    reserved = method.recipe_budget
    (tokens, images), (usual_tokens, usual_images) = (_estimated_initial_frames(of, envelope) for of in (method, usual))
    return replace(
        reserved,
        prompt_tokens=reserved.prompt_tokens + max(0, tokens - usual_tokens),
        images=reserved.images + max(0, images - usual_images),
    )


def _estimated_initial_frames(method: Method, envelope: PixelEnvelope) -> tuple[int, int]:
    """Tokens and images of the prompt, the tokens at most."""
    info = VideoInfo(duration_seconds=3600.0, num_frames=108_000, average_fps=30.0, width=1920, height=1080)
    sample = Sample(question="?", ground_truth="A", video_path="video.mp4", question_type="mc")
    request = method.plan_initial_frames(info, sample, envelope)
    messages = method.prompt(sample, info, planned_images(request, info))
    num_characters = sum(len(content_text(message.content)) for message in messages)
    return num_characters + len(request) * image_tokens(request.width, request.height, envelope.factor), len(request)


def planned_images(request: FrameRequest | None, info: VideoInfo) -> tuple[ImagePart, ...]:
    """Images of a request without pixels, for asking what they would cost: right in number and size, and in their
    labels as far as frames are evenly spaced."""
    if request is None:
        return ()
    seconds = request.seconds or tuple(index / info.average_fps for index in request.indices or ())
    indices = request.indices or tuple(min(round(time * info.average_fps), info.num_frames - 1) for time in seconds)
    region = None if request.region is None else request.region.in_pixels(info.width, info.height)
    return tuple(
        ImagePart(FrameRecord(index, time_seconds, request.width, request.height, region))
        for index, time_seconds in zip(indices, seconds, strict=True)
    )


def _initial_frames(method: Method, info: VideoInfo, sample: Sample, model: ModelTokens) -> FramesCost:
    request = method.plan_initial_frames(info, sample, model.envelope)
    messages = method.prompt(sample, info, planned_images(request, info))
    return _frames_cost(request, model, model.counter.prompt(messages))


def max_cost_call(method: Method, info: VideoInfo, envelope: PixelEnvelope) -> FrameRequest | None:
    """As many frames as one call can show of this video, at their size; which ones does not matter. None: no tool has a
    method `most_expensive_call(info, envelope)` that says so."""
    tools: list[Any] = [tool for tool in method.tools(info).values() if hasattr(tool, "most_expensive_call")]
    requests: list[FrameRequest] = [tool.most_expensive_call(info, envelope) for tool in tools]
    return max(requests, key=lambda request: len(request) * request.width * request.height, default=None)


def _call(method: Method, info: VideoInfo, sample: Sample, model: ModelTokens) -> FramesCost | None:
    request = max_cost_call(method, info, model.envelope)
    if request is None:
        return None
    outcome = ToolOutcome(CallRecord(name="", arguments={}, ok=True), planned_images(request, info), info)
    content = method.observe([outcome], turns_left=method.max_turns - 1)
    return _frames_cost(request, model, model.counter.observation(content))


def _frames_cost(request: FrameRequest, model: ModelTokens, tokens: int) -> FramesCost:
    frame_tokens = image_tokens(request.width, request.height, model.envelope.factor)
    return FramesCost(len(request), request.width, request.height, frame_tokens, tokens)


# ------------------------------------------------------------------------------------------- without a tokenizer

TURN_HEADER_TOKENS, MESSAGE_TOKENS = 3, 5
"""Of the chat template."""
PIECE = re.compile(r"\d|[^\W\d]{1,6}|[^\w\s]|\n")


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
