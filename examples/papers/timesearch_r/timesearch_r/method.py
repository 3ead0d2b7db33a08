"""TimeSearch-R (arXiv 2511.05489): search frames by text in time, and answer again from what the search has found.

"Code" is github.com/Time-Search/TimeSearch-R. README.md lists what differs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.oracle import Script, ScriptedOracle
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.seconds import evidence_seconds
from verl_video_tools.synthetic.world import VideoSpec
from verl_video_tools.video import linspace_indices

Images = Sequence[vt.ImagePart]
VERIFY = "Answer the question about a video from these frames of it alone, briefly. If they do not tell, say that."


@dataclass(frozen=True)
class SeekVideoFrames:
    """Shows the frames of a span that are most like a text, in order of time; spread evenly where it is blank."""

    name: ClassVar[str] = "seek_video_frames"
    method: TimeSearchR

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """``{"query": str, "start_time": 0, "end_time": the video's, "num_frames": 8}``; times in seconds.

        Raises:
            CallRejected: `malformed_call`, `out_of_range`, `reversed_segment` or `too_many_frames`.
        """
        info, most, query = context.info, self.method.call_frames, arguments.get("query")
        given = {name: value for name, value in arguments.items() if value is not None}
        whole = {"start_time": 0, "end_time": info.duration_seconds}
        start, end = vt.span_argument({**whole, **given}, info.duration_seconds)
        number = vt.finite_number(given.get("num_frames", most), read_text=False)
        if not isinstance(query, str) or number is None or number < 1 or number != int(number):
            raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, "query must be a text, num_frames a number from 1")
        if number > most:
            raise vt.CallRejected(vt.CallErrorCode.TOO_MANY_FRAMES, f"num_frames {number:g} is above {most}")
        first, last = (min(int(time * info.average_fps), info.num_frames - 1) for time in (start, end))
        most_candidates = min(self.method.max_candidates, 1 + round((end - start) * self.method.candidates_fps))
        candidates = linspace_indices(first, last, min(most_candidates, last - first + 1))
        if not query.strip():
            found = list(linspace_indices(first, last, int(number)))
        elif context.retriever is None:
            raise vt.RetrievalError("no retriever is set up: seek_video_frames finds frames by text")
        else:
            path, deadline_seconds = context.sample.video_path, self.method.tool_deadline_seconds
            found = await context.retriever.best_frames(path, candidates, query.strip(), int(number), deadline_seconds)
        width, height = vt.frame_size(info, 1, self.method.max_pixels, context.envelope)
        return vt.ToolPlan(vt.FrameRequest(width=width, height=height, indices=tuple(sorted(set(found)))))


@dataclass(frozen=True, kw_only=True)
class TimeSearchR(vt.Method):
    """Fields are the knobs; the defaults are the paper's where README.md names no other."""

    name: ClassVar[str] = "timesearch_r"
    reward_components: ClassVar[tuple[str, ...]] = ("format", "accuracy", "completeness")
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=18000, response_tokens=16000, images=320)
    oracle: ClassVar[str | None] = f"{__name__}:TimeSearchROracle"
    synthetic_question: ClassVar[str | None] = "verl_video_tools.synthetic.seconds:windows_in_seconds"

    max_turns: int = 8  # code: rounds, the answer's included
    max_turn_tokens: int | None = 256  # code
    end_on_call_error: bool = False  # code
    initial_frames: int = 256  # code: up to 768
    max_pixels: int = 31_360  # code: 10,240 tokens of 28 x 28 pixels for the initial frames; found frames are as large
    call_frames: int = 8
    candidates_fps: float = 2.0  # code: rate at which videos are read
    max_candidates: int = 768  # code
    format_reward: float = 1.0
    accuracy_reward: float = 0.5
    completeness_reward: float = 0.5

    def check_fields(self) -> None:
        for name in ("initial_frames", "max_pixels", "call_frames", "candidates_fps", "max_candidates"):
            vt.require(self, name, getattr(self, name) > 0, "above 0")
        vt.require(self, "compat", self.compat == "strict", "'strict'; README.md lists what differs from the code")

    @property
    def searches(self) -> bool:
        return True

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        return vt.spread_frames(info, self.initial_frames, vt.frame_size(info, 1, self.max_pixels, envelope))

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Images) -> list[vt.Message]:
        system = Path(self.prompt_file or Path(__file__).with_name("prompt.txt")).read_text(encoding="utf-8").strip()
        asked = f"\nThe video lasts {vt.format_seconds(info.duration_seconds, 1)} s.\n{sample.question}"
        return [vt.Message("system", (system,)), vt.Message("user", (*_labelled(images), asked))]

    def parse(self, text: str) -> vt.ParsedTurn:
        return vt.refuse_surplus_calls(vt.parse_turn(text), 1)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {SeekVideoFrames.name: SeekVideoFrames(self)}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        (outcome,) = outcomes[:1]  # several only where all but the first were refused for being several
        content = _labelled(outcome.images) if outcome.record.ok else (str(vt.format_error(outcome.record)),)
        return (*content, "\nAnswer, or search again." if turns_left > 1 else "\nAnswer now; no search is left.")

    def verification_context(
        self, trajectory: vt.Trajectory, dialogue: Sequence[vt.Message]
    ) -> list[vt.Message] | None:
        shown = [image for message in dialogue[2:] for image in vt.content_images(message.content)]  # not the prompt's
        found = {image.record.index: image for image in shown}
        asked = (*_labelled([found[index] for index in sorted(found)]), f"\n{trajectory.question}")
        return [vt.Message("system", (VERIFY,)), vt.Message("user", asked)] if found else None

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        score = await vt.answer_score(trajectory.answer, sample, judge)
        reply = None if trajectory.verification is None else trajectory.verification.text
        reply = next((block.inner for block in vt.find_blocks(reply or "", "answer")), reply)
        complete = score > 0.5 and await vt.answer_score(reply, sample, judge) > 0.5
        in_form = trajectory.answer is not None and all(turn.well_formed for turn in trajectory.turns)
        earned = (self.format_reward * in_form, self.accuracy_reward * score, self.completeness_reward * complete)
        return dict(zip(self.reward_components, earned, strict=True))


def _labelled(images: Images) -> vt.Content:
    return vt.frame_lines(images, lambda seconds: f"{seconds:.1f}s")


@dataclass(frozen=True, kw_only=True)
class TimeSearchROracle(ScriptedOracle):
    """Of the synthetic world: looks at the part that the question names, and answers by what it was shown."""

    method: TimeSearchR

    def script(self, spec: VideoSpec, question: Question) -> Script:
        rng, (start, end) = self._rng(spec, question), evidence_seconds(spec, question)
        if rng.random() < self.imperfection:
            start, end = (middle := rng.uniform(2.0, spec.duration_seconds - 2.0)) - 1.5, middle + 1.5
        start, end = round(start, 1), min(round(end, 1), spec.duration_seconds)
        arguments = {"query": "", "start_time": start, "end_time": end, "num_frames": self.method.call_frames}
        call = json.dumps({"name": "seek_video_frames", "arguments": arguments})
        first, last = (min(int(time * spec.fps), spec.num_frames - 1) for time in (start, end))
        shown = linspace_indices(first, last, min(self.method.call_frames, last - first + 1))
        turn = f"<think>between {start} and {end}</think><tool_call>{call}</tool_call>"
        return Script("seek", (turn, self._conclusion(rng, spec, question, shown)))
