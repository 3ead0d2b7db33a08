"""Surface `turns`: what a policy writes, from its text to the reward, without a video."""

from __future__ import annotations

import json
import math
from random import Random
from typing import Any, ClassVar

from tests.fuzz import methods
from tests.fuzz.surface import Surface
from tests.methods.doubles import ScoringRetriever
from tests.methods.frame_index import awaited
from verl_video_tools.core.errors import CallError, CallErrorCode, CallRejected
from verl_video_tools.core.types import (
    CallRecord,
    FrameRecord,
    FrameRequest,
    ImagePart,
    Method,
    ParsedTurn,
    PixelEnvelope,
    StopReason,
    ToolContext,
    ToolOutcome,
    ToolPlan,
    Trajectory,
    Turn,
    VideoInfo,
    content_images,
    content_text,
)
from verl_video_tools.rollout.observation import escape_special_tokens

VIDEOS = {
    "short": VideoInfo(4.0, 100, 25.0, 48, 32),
    "still": VideoInfo(0.04, 1, 25.0, 64, 36),
    "uneven": VideoInfo(7.3, 53, 53 / 7.3, 1920, 1080),
    "long": VideoInfo(12_345.6, 370_000, 29.97, 36, 640),
}
ENVELOPES = {"any": PixelEnvelope(), "qwen": PixelEnvelope(28, 784, 50_176)}
SPECIAL = ("<|im_end|>", "<|im_start|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>")


class Turns(Surface):
    """One turn: parsed, its calls planned and answered, and paid."""

    name: ClassVar[str] = "turns"
    unit: ClassVar[str] = "turns"

    def make(self, random: Random) -> Any:
        variant, video = random.choice([*methods.VARIANTS]), random.choice([*VIDEOS])
        info = VIDEOS[video]
        text = methods.turn(random, methods.VARIANTS[variant][0], info.duration_seconds, info.num_frames)
        envelope, question = random.choice([*ENVELOPES]), random.choice([*methods.QUESTIONS])
        return {"method": variant, "video": video, "envelope": envelope, "question": question, "text": text}

    def check(self, case: Any) -> int:
        self.run(self._check(case))
        return 1

    async def _check(self, case: Any) -> None:
        method, info = methods.method_of(case["method"]), VIDEOS[case["video"]]
        sample, envelope = methods.sample_of(case["question"], "v.mp4"), ENVELOPES[case["envelope"]]
        context = ToolContext(info, sample, envelope, awaited(lambda at: _index(info, at)), ScoringRetriever())
        parsed = method.parse(case["text"])
        assert isinstance(parsed, ParsedTurn)
        turn = Turn(case["text"], thought=parsed.thought, answer=parsed.answer, well_formed=parsed.well_formed)
        outcomes = []
        for call in parsed.calls:
            record = CallRecord(call.name, dict(call.arguments), ok=False, error=call.error)
            tool = method.tools(info).get(call.name)
            plan = ToolPlan()
            if record.error is None and tool is None:
                record.error = CallError(CallErrorCode.UNKNOWN_TOOL, "no such tool")
            elif record.error is None:
                try:
                    plan = await tool.plan(call.arguments, context)
                    record.ok, record.result = True, dict(plan.result)
                except CallRejected as rejection:
                    record.error = rejection.error
            images = () if plan.frames is None else _images(plan.frames, info, envelope)
            record.frames = [image.record for image in images]
            outcomes.append(ToolOutcome(record, images, info))
        turn.calls = [outcome.record for outcome in outcomes]
        if parsed.calls or method.continues_after(parsed):
            observation = escape_special_tokens(method.observe(outcomes, 2))
            shown = [image for outcome in outcomes for image in outcome.images]
            assert content_images(observation) == shown, "other frames than those of the calls"
            turn.observation = content_text(observation)
            assert not any(token in turn.observation for token in SPECIAL)
        await _check_reward(method, case["question"], turn, info)


async def _check_reward(method: Method, question: str, turn: Turn, info: VideoInfo) -> None:
    sample = methods.sample_of(question, "v.mp4")
    stop = StopReason.ANSWER if turn.answer is not None else StopReason.NO_ACTION
    trajectory = Trajectory(method.name, sample.question, info, turns=[turn], stop_reason=stop, answer=turn.answer)
    kept = json.loads(json.dumps(trajectory.to_dict()))
    assert Trajectory.from_dict(kept).to_dict() == kept
    reward = await method.score(trajectory, sample, methods.EqualJudge())
    assert all(math.isfinite(paid) for paid in reward.values()), reward
    methods.check_reward(method, trajectory, reward)
    if method.compat == "strict":
        assert await method.score(methods.without_unexecuted(trajectory), sample, methods.EqualJudge()) == reward


def _index(info: VideoInfo, seconds: float) -> int:
    assert 0 <= seconds <= info.duration_seconds, seconds
    return min(info.num_frames - 1, int(seconds * info.average_fps))


def _images(request: FrameRequest, info: VideoInfo, envelope: PixelEnvelope) -> tuple[ImagePart, ...]:
    """The frames of a plan, which must lie in the video and have a size that the model's processor leaves."""
    assert 1 <= len(request) <= 8, f"{len(request)} frames"
    assert request.width % envelope.factor == request.height % envelope.factor == 0
    assert envelope.min_pixels <= request.width * request.height <= envelope.max_pixels
    if request.indices is not None:
        assert all(type(index) is int and 0 <= index < info.num_frames for index in request.indices), request
    indices = request.indices or tuple(_index(info, seconds) for seconds in request.seconds or ())
    return tuple(
        ImagePart(FrameRecord(index, index / info.average_fps, request.width, request.height)) for index in indices
    )
