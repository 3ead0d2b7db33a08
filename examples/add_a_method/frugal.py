"""A method in one file: every look costs something, so that a policy learns to look only where it must.

<look>{"start_time": 4, "end_time": 8}</look>          or          <answer>B</answer>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import CallError, CallErrorCode
from verl_video_tools.core.grading import grade_answer
from verl_video_tools.core.json_text import load_object
from verl_video_tools.core.types import (
    AnswerLabel,
    Content,
    FrameRequest,
    ImagePart,
    Judge,
    Message,
    Method,
    ParsedTurn,
    PixelEnvelope,
    RolloutLimits,
    Sample,
    Tool,
    ToolCall,
    ToolOutcome,
    Trajectory,
    VideoInfo,
)
from verl_video_tools.methods.longvt.crop_video import CropVideo, frame_size
from verl_video_tools.methods.toolkit.blocks import find_blocks
from verl_video_tools.methods.toolkit.refusals import told_error
from verl_video_tools.video import linspace_indices

SYSTEM = (
    'Answer the question about the video. To see a part of it write <look>{"start_time": 4, "end_time": 8}</look>, in '
    "seconds, and stop. Every look costs you, so look only where you must. Your answer goes between <answer> and "
    "</answer>."
)


@dataclass(frozen=True, kw_only=True)
class Frugal(Method):
    """Fields are the knobs: `++actor_rollout_ref.rollout.custom.video_tools.frugal.look_price=0.2`."""

    name: ClassVar[str] = "frugal"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "price")
    recipe_budget: ClassVar[RolloutLimits] = RolloutLimits(prompt_tokens=4096, response_tokens=8192, images=64)
    thought_tag: ClassVar[str | None] = None

    max_turns: int = 4
    end_on_call_error: bool = False
    initial_frames: int = 8
    """Frames of the first look."""
    call_frames: int = 8
    """Frames of a further one at most."""
    max_pixels: int = 50_176
    """Area of a frame in pixels at most."""
    look_price: float = 0.1
    """What each executed look takes from the reward."""

    def check_fields(self) -> None:
        for name in ("initial_frames", "call_frames"):
            require(self, name, getattr(self, name) >= 2, "at least 2")
        require(self, "compat", self.compat == "strict", "'strict': there is no published code to follow")

    def first_look(self, info: VideoInfo, sample: Sample, envelope: PixelEnvelope) -> FrameRequest:
        width, height = frame_size(info, 1, self.max_pixels, envelope)
        indices = linspace_indices(0, info.num_frames - 1, self.initial_frames)
        return FrameRequest(width=width, height=height, indices=indices)

    def prompt(self, sample: Sample, info: VideoInfo, images: Sequence[ImagePart]) -> list[Message]:
        system = SYSTEM if self.prompt_file is None else Path(self.prompt_file).read_text(encoding="utf-8")
        return [Message("system", (system,)), Message("user", (f"{sample.question}\n", *_labelled(images)))]

    def parse(self, text: str) -> ParsedTurn:
        looks, answers = find_blocks(text, "look"), find_blocks(text, "answer")
        return ParsedTurn(
            calls=tuple(_read_look(block.inner) for block in looks),
            answer=answers[-1].inner.strip() if answers and not looks else None,
            well_formed=len(looks) + len(answers) == 1,
        )

    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        look = CropVideo(fps=1.0, max_frames=self.call_frames, min_pixels=1, max_pixels=self.max_pixels)
        return {look.name: look}

    def observe(self, outcomes: Sequence[ToolOutcome], turns_left: int) -> Content:
        content: list[str | ImagePart] = []
        for outcome in outcomes:
            content += _labelled(outcome.images) if outcome.record.ok else [f"\n{told_error(outcome.record)}"]
        return (*content, f"\nTurns left: {turns_left}")

    async def components(self, trajectory: Trajectory, sample: Sample, judge: Judge | None) -> dict[str, float]:
        correct = await grade_answer(trajectory.answer, sample, judge) is AnswerLabel.CORRECT
        accuracy = self.accuracy_reward * correct
        price = 0.0 - self.look_price * len(trajectory.executed_calls())
        return {"accuracy": accuracy, "price": price}


def _labelled(images: Sequence[ImagePart]) -> list[str | ImagePart]:
    """Each picture after its time."""
    return [part for image in images for part in (f"\n{image.record.timestamp_seconds:.1f} s: ", image)]


def _read_look(text: str) -> ToolCall:
    try:
        return ToolCall(CropVideo.name, load_object(text))
    except ValueError as error:
        return ToolCall(CropVideo.name, {"text": text[:200]}, CallError(CallErrorCode.MALFORMED_CALL, str(error)))
