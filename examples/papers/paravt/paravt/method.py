"""ParaVT (arXiv 2605.20342; code: https://github.com/EvolvingLMMs-Lab/ParaVT): parallel crops, frame-budget gating."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import CropVideo

SUMMARY = "These frames are a part of a longer video, in order. Say briefly what they show and what happens, in order."
PROMPT = Path(__file__).with_name("prompt.txt")


@dataclass(frozen=True, kw_only=True)
class ParaVT(vt.Method):
    """ParaVT's protocol and reward; the defaults are the code's PARA-GRPO."""

    name: ClassVar[str] = "paravt"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "format", "tool")
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=8192, response_tokens=24_576, images=320)
    oracle: ClassVar[str | None] = f"{__package__}.oracle:ParaVTOracle"
    synthetic_question: ClassVar[str | None] = "verl_video_tools.synthetic.seconds:windows_in_seconds"

    max_turns: int = 3
    end_on_call_error: bool = False
    summaries: bool = False
    """The run's tool model answers calls in words, as sub-agents do (paper); else the policy sees the frames."""
    frame_choices: tuple[int, ...] = (4, 8, 16, 32, 64)
    """Numbers of initial frames, one of which is drawn for each question (frame-budget gating)."""
    gated: bool = True
    """Draw from `frame_choices` (training); else show the most of them (validation)."""
    max_calls_per_turn: int = 8
    """Calls of one turn that are carried out (ours)."""
    fps: float = 1.0
    call_frames: int = 16
    """Frames of one crop at most."""
    max_pixels: int = 50_176
    format_reward: float = 1.0
    anchor_weight: float = 0.5
    """Weight of the anchor, which pays for a thought that is closed and leads to an answer; 0: plain GRPO."""

    def check_fields(self) -> None:
        vt.require(self, "frame_choices", bool(self.frame_choices) and min(self.frame_choices) >= 1, "each at least 1")
        for name, least in {"call_frames": 2, "max_calls_per_turn": 1, "max_pixels": 1}.items():
            vt.require(self, name, getattr(self, name) >= least, f"at least {least}")
        vt.require(self, "fps", self.fps > 0, "above 0")
        vt.require(self, "compat", self.compat == "strict", "'strict'")

    @property
    def asks_model(self) -> bool:
        return self.summaries

    def for_session(self, session_id: int, group_size: int, validate: bool) -> ParaVT:
        """Validation shows all frames, as the authors evaluate; the rollouts of a training group do not differ."""
        return replace(self, gated=False) if validate else self

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """Frames over the whole video; their number depends on question and length, so that a group shares it."""
        drawn = hashlib.sha256(f"{sample.question}\n{info.num_frames}".encode("utf-8", "replace")).digest()
        choices = self.frame_choices if self.gated else (max(self.frame_choices),)
        number = choices[int.from_bytes(drawn[:8], "big") % len(choices)]
        return vt.spread_frames(info, number, vt.frame_size(info, 1, self.max_pixels, envelope))

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        (tool,), duration = self.tools(info), vt.format_seconds(info.duration_seconds, decimals=1)
        values = {"tool": tool, "duration": duration, "max_turns": self.max_turns, "max_calls": self.max_calls_per_turn}
        system = vt.load_prompt("", PROMPT.name, self.prompt_file or str(PROMPT), **values)
        return [vt.Message("system", (system,)), vt.Message("user", (f"{sample.question}\n\n", *_timed(images)))]

    def parse(self, text: str) -> vt.ParsedTurn:
        return vt.refuse_surplus_calls(vt.parse_turn(text), self.max_calls_per_turn)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        if self.summaries:
            ask = vt.AskModel(num_frames=self.call_frames, min_pixels=1, max_pixels=self.max_pixels, question=SUMMARY)
            return {ask.name: ask}
        crop = CropVideo(fps=self.fps, max_frames=self.call_frames, min_pixels=1, max_pixels=self.max_pixels)
        return {crop.name: crop}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        """A `<tool_response>` for each call, in the order of the calls."""
        replies = [
            vt.with_text(each, _timed(each.images)) if each.record.ok else (f"Error: {vt.format_error(each.record)}",)
            for each in outcomes
        ]
        return tuple(part for reply in replies for part in ("<tool_response>\n", *reply, "\n</tool_response>\n"))

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """Accuracy, format and tool use (code), of which only executed calls count as calls."""
        score = await vt.answer_score(trajectory.answer, sample, judge) if trajectory.answer else 0.0
        tool = (0.8 if score > 0 else 0.3) if trajectory.executed_calls() else 0.0
        form = self.format_reward * format_score(trajectory, self.anchor_weight)
        return {"accuracy": self.accuracy_reward * score, "format": form, "tool": tool}


def format_score(trajectory: vt.Trajectory, anchor_weight: float) -> float:
    """At most 1: 0.2 for a thought, 0.5 for an answer, 0.3 for a call after a thought, 0.1 for closed tags, and
    `anchor_weight` times the anchor: 0.4 for a closed thought, 0.3 more with an answer, -0.3 for one left open."""
    text = "\n".join(turn.text for turn in trajectory.turns)
    thought = any(len(turn.thought or "") >= 10 for turn in trajectory.turns)
    answered, left_open = bool(trajectory.answer), "<think>" in text and "</think>" not in text
    calling = next((turn for turn in trajectory.turns if any(call.ok for call in turn.calls)), None)
    anchor = 0.4 * thought + 0.3 * (thought and answered) - 0.3 * left_open
    score = 0.2 * thought + 0.5 * answered + anchor_weight * anchor
    score += 0.3 * (thought and calling is not None and bool(calling.thought))
    closed = all(text.count(f"<{tag}>") == text.count(f"</{tag}>") for tag in ("think", "tool_call", "answer"))
    return min(score + 0.1 * (score > 0 and closed), 1.0)


def _timed(images: Sequence[vt.ImagePart]) -> vt.Content:
    return vt.frame_lines(images, lambda seconds: f"{seconds:.1f}s ")
