"""Pixel Reasoner (arXiv 2505.15966; code: https://github.com/TIGER-AI-Lab/Pixel-Reasoner), on videos."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.oracle import Script, ScriptedOracle, video_info

BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")  # with braces one deep inside
PROMPT = Path(__file__).with_name("prompt.txt")


@dataclass(frozen=True)
class SelectFrames:
    name: ClassVar[str] = "select_frames"
    max_frames: int
    max_pixels: int

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Initial frames, larger, in order of time: ``{"target_frames": [number, ...]}``, numbers from 1.
        Raises CallRejected: `malformed_call`, `too_many_frames`, `unknown_frame`."""
        given, initial = arguments.get("target_frames"), [each for each in context.previous_frames if each.turn == 0]
        if not isinstance(given, list | tuple) or not given:
            raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"target_frames must be numbers, got {given!r:.80}")
        if len(given) > self.max_frames:
            raise vt.CallRejected(vt.CallErrorCode.TOO_MANY_FRAMES, f"at most {self.max_frames}, got {len(given)}")
        indices = tuple(initial[place].index for place in sorted({_place(each, len(initial)) for each in given}))
        request = vt.FrameRequest(*vt.frame_size(context.info, 1, self.max_pixels, context.envelope), indices=indices)
        return vt.ToolPlan(request, result={"first_image": len(context.previous_frames) + 1})


@dataclass(frozen=True)
class CropImage:
    name: ClassVar[str] = "crop_image"
    padding: float
    max_pixels: int

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """A part of any picture, from the video: ``{"target_image": number, "bbox_2d": [left, top, right, bottom]}``.
        Raises CallRejected: `malformed_call`, `unknown_frame`, `reversed_box`, `box_outside`, `box_too_small`."""
        shown = context.previous_frames[place := _place(arguments.get("target_image"), len(context.previous_frames))]
        size, pad = shown.region or context.info, self.padding
        region, _ = vt.region_argument(arguments, "bbox_2d", (size.width, size.height), "normalised")
        box = [*(max(edge - pad, 0) for edge in region.box[:2]), *(min(edge + pad, 1) for edge in region.box[2:])]
        zoom = vt.Zoom(frame_by="frame", max_pixels=self.max_pixels, min_pixels=3136, min_side_pixels=29)
        plan = await zoom.plan({"frame": place, "box": box}, context)
        return replace(plan, result={**plan.result, "first_image": len(context.previous_frames) + 1})


@dataclass(frozen=True, kw_only=True)
class PixelReasoner(vt.Method):
    """Pixel Reasoner's operations and reward on videos; the README tells where each default is from."""

    name: ClassVar[str] = "pixel_reasoner"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "surplus", "curiosity")
    group_components: ClassVar[tuple[str, ...]] = ("curiosity",)
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=6144, response_tokens=16_384, images=48)
    thought_tag: ClassVar[str | None] = None
    oracle: ClassVar[str | None] = f"{__name__}:PixelReasonerOracle"
    synthetic_question: ClassVar[str | None] = "verl_video_tools.synthetic.seconds:windows_in_seconds"

    max_turns: int = 5
    end_on_call_error: bool = False
    initial_frames: int = 16
    call_frames: int = 8  # of one selection, at most
    max_pixels: int = 200_704
    select_max_pixels: int = 313_600
    crop_max_pixels: int = 784_000
    padding: float = 0.1  # shares of a picture by which a box is widened on each side
    free_calls: int = 1  # without a price (N in the paper)
    call_price: float = 0.05  # of each further call, also of a refused one (beta)
    wanted_rate: float = 0.3  # of rollouts with an executed call in a group, below which these earn more (H)
    curiosity_weight: float = 0.5  # factor of what the rate lacks (alpha)

    def check_fields(self) -> None:
        least = dict.fromkeys(("initial_frames", "call_frames", "max_pixels", "select_max_pixels"), 1)
        least |= {"crop_max_pixels": 3136, "padding": 0, "free_calls": 0, "call_price": 0, "curiosity_weight": 0}
        for name, bound in least.items():
            vt.require(self, name, getattr(self, name) >= bound, f"at least {bound}")
        vt.require(self, "wanted_rate", 0 <= self.wanted_rate <= 1, "from 0 to 1")
        vt.require(self, "compat", self.compat == "strict", "'strict'")

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        return vt.spread_frames(info, self.initial_frames, vt.frame_size(info, 1, self.max_pixels, envelope))

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        numbers = {"call_frames": self.call_frames, "max_turns": self.max_turns}
        system = vt.load_prompt("", PROMPT.name, self.prompt_file or str(PROMPT), **numbers)
        return [vt.Message("system", (system,)), vt.Message("user", (f"{sample.question}\n", *_numbered(images, 1)))]

    def parse(self, text: str) -> vt.ParsedTurn:
        calls, boxes = vt.parse_calls(text), BOXED.findall(re.sub(r"\\text\{([^{}]*)\}", r"\1", text))
        answer = boxes[-1].strip() if boxes and not calls else None
        well_formed = bool(calls or boxes) and all(call.error is None for call in calls)
        turn = vt.ParsedTurn(None, calls, answer, well_formed)
        return vt.refuse_surplus_calls(turn, 1)  # so `first_image` is where the pictures of a turn begin

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        select = SelectFrames(self.call_frames, self.select_max_pixels)
        return {"crop_image": CropImage(self.padding, self.crop_max_pixels), "select_frames": select}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        told = [f"\nError: {vt.format_error(each.record)}" for each in outcomes if not each.record.ok]
        seen = [(each.images, each.record.result["first_image"]) for each in outcomes if each.record.ok]
        return (*(part for images, first in seen for part in _numbered(images, first)), *told)

    async def components(self, trajectory: vt.Trajectory, sample: vt.Sample, judge: Any) -> dict[str, float]:
        right = await vt.grade_answer(trajectory.answer, sample, judge) is vt.AnswerLabel.CORRECT
        surplus = max(len(trajectory.calls()) - self.free_calls, 0)
        return {"accuracy": self.accuracy_reward * right, "surplus": 0.0 - self.call_price * surplus}

    def score_group(self, trajectories: Sequence[vt.Trajectory], rewards: Any, sample: Any) -> list[dict[str, float]]:
        bonuses = vt.curiosity_bonus([vt.uses_tools(each) for each in trajectories], self.wanted_rate)
        return [{"curiosity": self.curiosity_weight * bonus} for bonus in bonuses]


def _place(number: Any, count: int) -> int:
    """From 0, of the picture that a call names by its number from 1."""
    value = vt.finite_number(number, read_text=False)
    if value is None or value not in range(1, count + 1):
        raise vt.CallRejected(vt.CallErrorCode.UNKNOWN_FRAME, f"there is no picture {number!r:.80}; give 1 to {count}")
    return int(value) - 1


def _numbered(images: Sequence[vt.ImagePart], first: int) -> list[str | vt.ImagePart]:
    lines = (f"\nimage {number}, {each.record.timestamp_seconds:.1f}s: " for number, each in enumerate(images, first))
    return [part for pair in zip(lines, images, strict=True) for part in pair]


@dataclass(frozen=True, kw_only=True)
class PixelReasonerOracle(ScriptedOracle):
    answer_turn: ClassVar[str] = "{thought}. \\boxed{{{answer}}}"
    method: PixelReasoner

    def script(self, spec: Any, question: Any) -> Script:
        frames = vt.spread_frames(video_info(spec), self.method.initial_frames, (1, 1)).indices or ()
        span, rng = range(question.evidence[0][0], question.evidence[-1][1] + 1), self._rng(spec, question)
        numbers = [number for number, frame in enumerate(frames, 1) if frame in span][: self.method.call_frames]
        if not numbers or rng.random() < self.imperfection:
            return Script("guess", (self._conclusion(rng, spec, question, []),))
        call = f'"select_frames", "arguments": {{"target_frames": {numbers}}}'
        if len(numbers) == 1:  # the whole of it
            call = f'"crop_image", "arguments": {{"target_image": {numbers[0]}, "bbox_2d": [0, 0, 1, 1]}}'
        answer = self._conclusion(rng, spec, question, [frames[number - 1] for number in numbers])
        return Script("look", (f'look closer<tool_call>{{"name": {call}}}</tool_call>', answer))
