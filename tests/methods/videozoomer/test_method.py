"""VideoZoomer's prompt and reward, on records made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.core.errors import CallError, JudgeError, UsageError
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.types import (
    AnswerLabel,
    CallRecord,
    FrameRecord,
    ImagePart,
    PixelEnvelope,
    Sample,
    StopReason,
    Trajectory,
    Turn,
    VideoInfo,
    content_text,
)
from verl_video_tools.methods import get_method
from verl_video_tools.methods.videozoomer import VideoZoomer

VIDEO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=1920, height=1080)
SAMPLE = Sample("What happens?\nA. nothing\nB. a goal", "B", "video.mp4", "mc", options=("nothing", "a goal"))
OPEN = replace(SAMPLE, question="What happens?", ground_truth="a goal", question_type="open", options=())


def videozoomer(**settings: Any) -> VideoZoomer:
    method = get_method("videozoomer", **settings)
    assert isinstance(method, VideoZoomer)
    return method


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("max_turns", 0), ("initial_frames", 0), ("glance_fps", 0), ("call_frames", 0), ("max_pixels", 0)],
        *[("max_turn_tokens", 0), ("tool_deadline_seconds", 0), ("call_penalty", -0.1), ("bonus_condition", "never")],
    ],
)
def test_wrong_values_are_named(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"VideoZoomer\.{field} .*got"):
        videozoomer(**{field: value})


# ------------------------------------------------------------------------------------------------------------- messages


def test_prompt() -> None:
    images = [ImagePart(FrameRecord(index, index / 30, 420, 224)) for index in (0, 60)]
    system, user = videozoomer().prompt(SAMPLE, VIDEO, images)
    assert (system.role, user.role) == ("system", "user")
    marks = "<frame0_time0.00s><image><frame1_time2.00s><image>"
    assert content_text(user.content) == f"{marks}\nWhat happens?\nA. nothing\nB. a goal"
    text = content_text(system.content)
    assert "at most 16 frames" in text and "must not exceed 16" in text and "at most 4 times" in text
    assert "{max" not in text
    fewer = content_text(videozoomer(call_frames=8, max_turns=3).prompt(SAMPLE, VIDEO, images)[0].content)
    assert "at most 8 frames" in fewer and "at most 2 times" in fewer


def test_the_prompt_example_follows_its_own_grammar() -> None:
    text = content_text(videozoomer().prompt(SAMPLE, VIDEO, ())[0].content)
    example = videozoomer().parse(text[text.index("Example of one turn:") + len("Example of one turn:") :])
    assert example.well_formed
    assert dict(example.calls[0].arguments) == {"segment": [12.0, 16.0], "fps": 2}


def test_prompt_file_replaces_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text('Up to {call_frames}: <video_zoom>{"segment": [s, e], "fps": n}</video_zoom>\n')
    system = videozoomer(prompt_file=str(path)).prompt(SAMPLE, VIDEO, ())[0]
    assert content_text(system.content) == 'Up to 16: <video_zoom>{"segment": [s, e], "fps": n}</video_zoom>'


@pytest.mark.parametrize(
    ("native", "size", "tokens"),
    [((1920, 1080), (420, 224), 120), ((640, 480), (364, 252), 117), ((320, 240), (308, 252), 99)],
)
def test_sizes_in_the_recipes_envelope(native: tuple[int, int], size: tuple[int, int], tokens: int) -> None:
    info = replace(VIDEO, width=native[0], height=native[1])
    look = videozoomer().plan_initial_frames(info, SAMPLE, PixelEnvelope(28, 25_088, 100_352))
    assert (look.width, look.height) == size
    assert look.width * look.height // 28**2 == tokens <= 128


def test_a_small_video_is_enlarged_only_to_the_envelopes_minimum() -> None:
    info = replace(VIDEO, width=64, height=36)
    look = videozoomer().plan_initial_frames(info, SAMPLE, PixelEnvelope(28, 25_088, 100_352))
    assert 25_088 <= look.width * look.height < 2 * 25_088
    alone = videozoomer().plan_initial_frames(info, SAMPLE, PixelEnvelope())
    assert (alone.width, alone.height) == (64, 36)


def test_a_glance_shows_the_last_frame_of_a_long_video() -> None:
    """1000 s at 25 per second: 64 frames, 15.84 s apart."""
    info = VideoInfo(1000.0, 25_000, 25.0, 64, 36)
    reference = videozoomer(compat="reference").plan_initial_frames(info, SAMPLE, PixelEnvelope())
    assert reference.indices is not None
    assert (len(reference.indices), reference.indices[1] / 25, reference.indices[-1] / 25) == (64, 15.84, 999.96)
    look = videozoomer().plan_initial_frames(info, SAMPLE, PixelEnvelope())
    assert look.seconds is not None
    assert tuple(int(time * 25) for time in look.seconds) == reference.indices


# ----------------------------------------------------------------------------------------------------------- the reward


def turn(text: str, **fields: Any) -> Turn:
    parsed = videozoomer().parse(text)
    frames = [FrameRecord(index, index / 30, 420, 224) for index in (120, 180)]
    calls = [CallRecord(call.name, dict(call.arguments), ok=True, frames=frames) for call in parsed.calls]
    return replace(Turn(text, calls, answer=parsed.answer, well_formed=parsed.well_formed), **fields)


ZOOM = turn('<think>so</think><video_zoom>{"segment": [4, 6], "fps": 2}</video_zoom>')
ONE = replace(ZOOM, calls=[replace(call, frames=call.frames[:1] * 16) for call in ZOOM.calls])
"""A zoom that shows one frame sixteen times."""
FAILED = replace(
    ZOOM, calls=[CallRecord("video_zoom", {}, ok=False, error=CallError("response_budget", "does not fit"))]
)


def answer(text: str) -> Turn:
    return turn(f"<think>so</think><answer>{text}</answer>")


def rollout(*turns: Turn, stop_reason: StopReason = StopReason.ANSWER) -> Trajectory:
    return Trajectory("videozoomer", SAMPLE.question, VIDEO, [], list(turns), stop_reason, answer=turns[-1].answer)


class Verdict:
    """A judge that always says the same."""

    def __init__(self, label: AnswerLabel | None) -> None:
        self.label = label
        self.asked: list[tuple[str, str, str]] = []

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        self.asked.append((question, truth, answer))
        if self.label is None:
            raise JudgeError("no verdict")
        return self.label


@pytest.mark.parametrize(
    ("settings", "trajectory", "score"),
    [
        ({}, rollout(ZOOM, answer("B")), 1.5),
        ({}, rollout(ZOOM, answer("a goal")), 1.5),
        ({}, rollout(ZOOM, answer("nothing")), 0.1),
        ({}, rollout(FAILED, answer("B")), 0.9),
        ({}, rollout(FAILED, ZOOM, answer("B")), 1.4),
        ({}, rollout(ZOOM, replace(answer("B"), well_formed=False)), 1.4),
        ({"accuracy_reward": 1, "format_reward": 0, "tool_bonus": 0.25}, rollout(ZOOM, answer("B")), 1.25),
        ({"bonus_condition": "always"}, rollout(ZOOM, answer("A")), 0.6),
        ({"bonus_condition": "always"}, rollout(FAILED, answer("A")), 0.0),
        ({"call_penalty": 0.1}, rollout(ZOOM, ZOOM, answer("B")), 1.3),
        ({}, rollout(ONE, answer("B")), 1.0),
        ({}, rollout(ONE, ZOOM, answer("B")), 1.5),
        ({"require_zoom": True}, rollout(ONE, answer("B")), 0.0),
        ({"tool_bonus": -0.1}, rollout(ONE, answer("B")), 0.9),
        ({"call_penalty": 0.1}, rollout(ONE, answer("B")), 0.9),
    ],
)
async def test_score(settings: dict[str, Any], trajectory: Trajectory, score: float) -> None:
    method = videozoomer(**settings)
    reward = await method.score(trajectory, SAMPLE)
    assert reward["score"] == pytest.approx(score)
    assert reward.keys() == {"score", *method.reward_components}


@pytest.mark.parametrize("turns", [(answer("B"),), (answer("A"),), (ZOOM, answer("B")), (ZOOM, ZOOM, answer("A"))])
async def test_reference_agrees_on_honest_rollouts(turns: tuple[Turn, ...]) -> None:
    trajectory = rollout(*turns)
    reference = await videozoomer(compat="reference").score(trajectory, SAMPLE)
    assert reference == await videozoomer().score(trajectory, SAMPLE)


@pytest.mark.parametrize("stop_reason", [StopReason.VIDEO_ERROR, StopReason.ABORTED])
@pytest.mark.parametrize("compat", ["strict", "reference"])
async def test_infrastructure_earns_nothing(stop_reason: StopReason, compat: str) -> None:
    method = videozoomer(compat=compat)
    assert await method.score(rollout(answer("B"), stop_reason=stop_reason), SAMPLE) == zero_reward(method)


@pytest.mark.parametrize("compat", ["strict", "reference"])
@pytest.mark.parametrize(
    ("label", "score"), [(AnswerLabel.CORRECT, 1.5), (AnswerLabel.PARTIAL, 0.1), (AnswerLabel.INCORRECT, 0.1)]
)
async def test_open_questions_are_judged_by_the_answer_alone(label: AnswerLabel, score: float, compat: str) -> None:
    judge = Verdict(label)
    reward = await videozoomer(compat=compat).score(rollout(ZOOM, answer("they score")), OPEN, judge)
    assert reward["score"] == pytest.approx(score)
    assert judge.asked == [("What happens?", "a goal", "they score")]


@pytest.mark.parametrize("compat", ["strict", "reference"])
async def test_a_judge_that_fails_is_heard(compat: str) -> None:
    with pytest.raises(JudgeError):
        await videozoomer(compat=compat).score(rollout(answer("they score")), OPEN, Verdict(None))
    with pytest.raises(UsageError, match="needs a judge"):
        await videozoomer(compat=compat).score(rollout(answer("they score")), OPEN)
