"""A method in one file that looks at parts of frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.grammar import parse_turn, tool_schema, tools_section

PATH = f"{__name__}:Zooming"


@dataclass(frozen=True, kw_only=True)
class Zooming(vt.Method):
    name: ClassVar[str] = "zooming"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "box")
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=4096, response_tokens=4096, images=32)

    max_turns: int = 4
    end_on_call_error: bool = False
    initial_frames: int = 4
    max_pixels: int = 12_544
    unit: vt.BoxUnit = "normalised"
    frame_by: Literal["time", "frame"] = "time"
    min_side_pixels: int = 8

    def zoom(self) -> vt.Zoom:
        return vt.Zoom(
            frame_by=self.frame_by,
            unit=self.unit,
            max_pixels=self.max_pixels,
            min_pixels=1,
            min_side_pixels=self.min_side_pixels,
        )

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {"zoom": self.zoom()}

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        return vt.spread_frames(info, self.initial_frames, vt.frame_size(info, 1, self.max_pixels, envelope))

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        zoom = self.zoom().description
        schemas = [tool_schema(zoom.name, zoom.description, zoom.parameters, zoom.optional)]
        frames = [part for image in images for part in (f"\n{vt.picture_label(image.record, info)}: ", image)]
        return [
            vt.Message("system", (tools_section(schemas),)),
            vt.Message("user", (f"{sample.question}\n", *frames)),
        ]

    def parse(self, text: str) -> vt.ParsedTurn:
        return parse_turn(text)

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        content: list[str | vt.ImagePart] = []
        for outcome in outcomes:
            if not outcome.record.ok:
                content.append(f"\n{vt.format_error(outcome.record)}")
            for image in outcome.images:
                assert outcome.video is not None
                content += [f"\n{vt.picture_label(image.record, outcome.video, self.unit)}: ", image]
        return (*content, f"\nTurns left: {turns_left}")

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """The answer, and the overlap of the last part that was looked at with the row's `box`."""
        correct = await vt.grade_answer(trajectory.answer, sample, judge) is vt.AnswerLabel.CORRECT
        regions = [frame.region for call in trajectory.executed_calls() for frame in call.frames if frame.region]
        truth = sample.extra_info.get("box")
        box = vt.box_iou(regions[-1], truth) if regions and truth else 0.0
        return {"accuracy": self.accuracy_reward * correct, "box": box}
