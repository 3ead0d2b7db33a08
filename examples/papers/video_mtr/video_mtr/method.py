"""Video-MTR (arXiv 2508.20478; code: https://github.com/Xyuan13/Video-MTR): turns are paid for what they retrieve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import CropVideo

PROMPT = Path(__file__).with_name("prompt.txt")


@dataclass(frozen=True, kw_only=True)
class VideoMTR(vt.Method):
    """Video-MTR's gated reward on crops in seconds; the README says where each default is from."""

    name: ClassVar[str] = "video_mtr"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "retrieval")
    turn_components: ClassVar[tuple[str, ...]] = ("retrieval",)
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=6144, response_tokens=6144, images=24)
    oracle: ClassVar[str | None] = f"{__package__}.oracle:VideoMTROracle"
    synthetic_question: ClassVar[str | None] = "verl_video_tools.synthetic.seconds:windows_in_seconds"

    max_turns: int = 3
    end_on_call_error: bool = False
    initial_frames: int = 8
    fps: float = 1.0
    call_frames: int = 8  # of one crop, at most
    max_pixels: int = 200_704
    retrieval_reward: float = 0.5  # of a turn whose frames fit the evidence better than those before
    turn_price: float = 0.1  # taken from a right answer for each turn

    def check_fields(self) -> None:
        for name, least in {"initial_frames": 1, "call_frames": 2, "max_pixels": 1, "turn_price": 0}.items():
            vt.require(self, name, getattr(self, name) >= least, f"at least {least}")
        vt.require(self, "fps", self.fps > 0, "above 0")
        vt.require(self, "turn_price", self.turn_price * self.max_turns < 1, "below 1 / max_turns")
        vt.require(self, "compat", self.compat == "strict", "'strict'")

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        return vt.spread_frames(info, self.initial_frames, vt.frame_size(info, 1, self.max_pixels, envelope))

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        values = {"duration": vt.format_seconds(info.duration_seconds, decimals=1), "max_turns": self.max_turns}
        system = vt.load_prompt("", PROMPT.name, self.prompt_file or str(PROMPT), **values)
        return [vt.Message("system", (system,)), vt.Message("user", (f"{sample.question}\n\n", *_timed(images)))]

    def parse(self, text: str) -> vt.ParsedTurn:
        return vt.refuse_surplus_calls(vt.parse_turn(text), 1)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        crop = CropVideo(fps=self.fps, max_frames=self.call_frames, min_pixels=1, max_pixels=self.max_pixels)
        return {crop.name: crop}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        replies = [
            vt.with_text(each, _timed(each.images)) if each.record.ok else (f"Error: {vt.format_error(each.record)}",)
            for each in outcomes
        ]
        return tuple(part for reply in replies for part in ("<tool_response>\n", *reply, "\n</tool_response>\n"))

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> Mapping[str, float | Sequence[float]]:
        """Accuracy, less for each turn, and for each turn what it has retrieved; nothing without a right answer."""
        right = await vt.grade_answer(trajectory.answer, sample, judge) is vt.AnswerLabel.CORRECT
        price = self.turn_price * len(trajectory.turns)
        improved = improvements(trajectory, sample.video_segment_seconds)
        return {
            "accuracy": self.accuracy_reward * (1 - price) * right,
            "retrieval": [self.retrieval_reward * right * each for each in improved],
        }

    def acc(self, reward: Mapping[str, float], sample: vt.Sample) -> float:
        return float(reward.get("accuracy", 0.0) > 0)


def improvements(trajectory: vt.Trajectory, evidence: tuple[float, float] | None) -> list[bool]:
    """Whether the frames that a turn was shown fit the evidence better, by temporal IoU, than those shown before it."""
    if evidence is None or trajectory.video is None:
        return [False] * len(trajectory.turns)
    improved, before = [], vt.temporal_iou((0.0, trajectory.video.duration_seconds), evidence)
    for turn in trajectory.turns:
        spans = [(call.result["start_time"], call.result["end_time"]) for call in turn.calls if call.ok]
        now = max((vt.temporal_iou(span, evidence) for span in spans), default=before)
        improved.append(now > before)
        before = now
    return improved


def _timed(images: Sequence[vt.ImagePart]) -> vt.Content:
    return vt.frame_lines(images, lambda seconds: f"{seconds:.1f}s ")
