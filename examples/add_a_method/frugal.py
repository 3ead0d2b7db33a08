"""A method in one file: every look costs something, so that a policy learns to look only where it must.

<look>{"start_time": 4, "end_time": 8}</look>          or          <answer>B</answer>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import CropVideo
from verl_video_tools.video import linspace_indices

SYSTEM = (
    'Answer the question about the video. To see a part of it write <look>{"start_time": 4, "end_time": 8}</look>, in '
    "seconds, and stop. Every look costs you, so look only where you must. Your answer goes between <answer> and "
    "</answer>."
)


@dataclass(frozen=True, kw_only=True)
class Frugal(vt.Method):
    """Fields are the knobs: `+video_tools.frugal.look_price=0.2`."""

    name: ClassVar[str] = "frugal"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "price")
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=4096, response_tokens=8192, images=64)
    thought_tag: ClassVar[str | None] = None
    check_examples: ClassVar[tuple[str, ...]] = (
        '<look>{"start_time": 4, "end_time": 8}</look>',
        "<answer>B</answer>",
    )
    """Turns that `vvt check-method` tries."""

    max_turns: int = 4
    end_on_call_error: bool = False
    initial_frames: int = 8
    """Frames that are shown with the question."""
    call_frames: int = 8
    """Frames that a tool call shows at most."""
    max_pixels: int = 50_176
    """Area of a frame in pixels at most."""
    look_price: float = 0.1
    """What each executed look takes from the reward."""

    def check_fields(self) -> None:
        for name in ("initial_frames", "call_frames"):
            vt.require(self, name, getattr(self, name) >= 2, "at least 2")
        vt.require(self, "max_pixels", self.max_pixels >= 1, "at least 1")
        vt.require(self, "compat", self.compat == "strict", "'strict': there is no published code to follow")

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        width, height = vt.frame_size(info, 1, self.max_pixels, envelope)
        indices = linspace_indices(0, info.num_frames - 1, self.initial_frames)
        return vt.FrameRequest(width=width, height=height, indices=indices)

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        system = SYSTEM if self.prompt_file is None else Path(self.prompt_file).read_text(encoding="utf-8")
        return [vt.Message("system", (system,)), vt.Message("user", (f"{sample.question}\n", *_labelled(images)))]

    def parse(self, text: str) -> vt.ParsedTurn:
        looks, answers = vt.find_blocks(text, "look"), vt.find_blocks(text, "answer")
        return vt.ParsedTurn(
            calls=tuple(_read_look(block.inner) for block in looks),
            answer=answers[-1].inner.strip() if answers and not looks else None,
            well_formed=len(looks) + len(answers) == 1,
        )

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        look = CropVideo(fps=1.0, max_frames=self.call_frames, min_pixels=1, max_pixels=self.max_pixels)
        return {look.name: look}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        content: list[str | vt.ImagePart] = []
        for outcome in outcomes:
            content += _labelled(outcome.images) if outcome.record.ok else [f"\n{vt.format_error(outcome.record)}"]
        return (*content, f"\nTurns left: {turns_left}")

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        correct = await vt.grade_answer(trajectory.answer, sample, judge) is vt.AnswerLabel.CORRECT
        accuracy = self.accuracy_reward * correct
        price = 0.0 - self.look_price * len(trajectory.executed_calls())
        return {"accuracy": accuracy, "price": price}


def _labelled(images: Sequence[vt.ImagePart]) -> list[str | vt.ImagePart]:
    """Each picture after its time."""
    return [part for image in images for part in (f"\n{image.record.timestamp_seconds:.1f} s: ", image)]


def _read_look(text: str) -> vt.ToolCall:
    try:
        return vt.ToolCall(CropVideo.name, vt.load_object(text))
    except ValueError as error:
        return vt.ToolCall(
            CropVideo.name, {"text": text[:200]}, vt.CallError(vt.CallErrorCode.MALFORMED_CALL, str(error))
        )
