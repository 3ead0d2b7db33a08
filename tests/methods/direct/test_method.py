"""The method without tools: what it shows, what it takes for an answer, and what that earns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.types import (
    AnswerLabel,
    FrameRecord,
    ImagePart,
    PixelEnvelope,
    Sample,
    StopReason,
    VideoInfo,
    content_text,
)
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode

VIDEO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=1920, height=1080)
SAMPLE = Sample("What happens?\nA. nothing\nB. a goal", "B", "video.mp4", "mc", options=("nothing", "a goal"))
OPEN = replace(SAMPLE, question="What happens?", ground_truth="a goal", question_type="open", options=())


class PartlyRight:
    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        return AnswerLabel.PARTIAL


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_turns", 2),
        ("initial_frames", -1),
        ("max_video_tokens", 1),
        ("box", [0, 360]),
        ("compat", "reference"),
        ("max_turn_tokens", 0),
    ],
)
def test_wrong_values_are_named(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"Direct\.{field} .*got"):
        get_method("direct", **{field: value})


def test_initial_frames_span_the_video_at_the_size_of_the_published_code() -> None:
    look = get_method("direct").plan_initial_frames(VIDEO, SAMPLE, PixelEnvelope())
    assert (look.width, look.height, len(look)) == (640, 360, 16)
    assert look.indices is not None and (look.indices[0], look.indices[1], look.indices[-1]) == (0, 199, 2999)
    fitted = get_method("direct", initial_frames=4).plan_initial_frames(VIDEO, SAMPLE, PixelEnvelope(32, 1024, 1 << 20))
    assert (fitted.width, fitted.height, fitted.indices) == (640, 352, (0, 999, 1999, 2999))
    short = get_method("direct").plan_initial_frames(replace(VIDEO, num_frames=3), SAMPLE, PixelEnvelope())
    assert short.indices == (0, 1, 2)


def test_prompt() -> None:
    method = get_method("direct")
    images = [ImagePart(FrameRecord(index, index / 30, 640, 360)) for index in (0, 60)]
    system, user = method.prompt(SAMPLE, VIDEO, images)
    assert content_text(user.content) == (
        f"{SAMPLE.question}\n\nframe 0 at 0.00 s: <image>\nframe 60 at 2.00 s: <image>"
    )
    text = content_text(system.content)
    assert "16 frames" in text and "{num" not in text
    example = method.parse(text[text.index("Example:") + len("Example:") :])
    assert example.well_formed and example.answer == "B"


def test_the_profile_with_thoughts() -> None:
    method = get_method("direct", answering="cot")
    system, user = method.prompt(SAMPLE, VIDEO, [ImagePart(FrameRecord(0, 0.0, 640, 360))])
    text = content_text(system.content)
    assert user == get_method("direct").prompt(SAMPLE, VIDEO, [ImagePart(FrameRecord(0, 0.0, 640, 360))])[1]
    assert "16 frames" in text and "step by step" in text and "as short as possible" not in text
    example = method.parse(text[text.index("Example:") + len("Example:") :])
    assert example.well_formed and example.answer == "B" and example.thought
    assert (method.label, get_method("direct").label) == ("direct, CoT", "direct")


def test_without_a_frame() -> None:
    method = get_method("direct", answering="cot", initial_frames=0)
    assert len(method.plan_initial_frames(VIDEO, SAMPLE, PixelEnvelope())) == 0
    system, user = method.prompt(SAMPLE, VIDEO, [])
    assert content_text(user.content).strip() == SAMPLE.question
    assert "not shown" in content_text(system.content) and "frames" not in content_text(system.content)
    assert method.label == "direct, CoT, no visual"


@pytest.mark.parametrize(
    ("seconds", "num_frames", "pixels"),
    [
        (1.0, 4, 768),  # no fewer than four
        (10.0, 20, 768),  # two a second, as large as a frame may be
        (10.6, 20, 768),  # an even number
        (100.0, 200, 245),  # 24,576 tokens for 100 pairs
        (1000.0, 768, 64),  # spread over all of it, below the least area of a frame otherwise
    ],
)
@pytest.mark.parametrize("factor", [1, 28, 32])
def test_video_input_as_published(seconds: float, num_frames: int, pixels: int, factor: int) -> None:
    video = replace(VIDEO, duration_seconds=seconds, num_frames=round(seconds * 30))
    method = get_method("direct", frames_as="video")
    look = method.plan_initial_frames(video, SAMPLE, PixelEnvelope() if factor == 1 else PixelEnvelope(factor))
    patch = 28 if factor == 1 else factor
    assert len(look) == num_frames and look.width % patch == look.height % patch == 0
    tokens_per_pair = look.width * look.height // patch**2
    assert 0.75 * pixels < tokens_per_pair <= pixels
    assert tokens_per_pair * num_frames // 2 <= 24576
    assert look.indices is not None and (look.indices[0], look.indices[-1]) == (0, video.num_frames - 1)
    steps = {later - earlier for earlier, later in zip(look.indices, look.indices[1:], strict=False)}
    assert max(steps) - min(steps) <= 1


def test_a_video_stands_after_the_question() -> None:
    method = get_method("direct", frames_as="video")
    images = [ImagePart(FrameRecord(index, index / 30, 640, 360)) for index in (0, 60)]
    system, user = method.prompt(SAMPLE, VIDEO, images)
    assert user.content[-2:] == tuple(images) and content_text(user.content) == f"{SAMPLE.question}\n\n<image><image>"
    assert "stands after the question" in content_text(system.content)
    assert method.label == "direct, video input"
    assert not get_method("direct", frames_as="video", initial_frames=0).initial_frames_as_video


@pytest.mark.parametrize("fields", [{"frames_as": "video"}, {"initial_frames": 0}])
def test_what_is_for_evaluation_does_not_train(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="are for `vvt eval`"):
        get_method("direct", **fields).check_gradable(SAMPLE, None)


@pytest.mark.parametrize(
    ("text", "answer", "thought", "well_formed"),
    [
        ("<answer> B </answer>", "B", None, True),
        ("I see a goal.\n<answer>B</answer>\n", "B", None, True),
        ("<think>A or B?</think><answer>B</answer>", "B", "A or B?", True),
        ("<think>not <answer>A</answer></think><answer>B</answer>", "B", "not <answer>A</answer>", True),
        ("opened by the chat template</think>\n\nB", "B", "opened by the chat template", False),
        ("<thinking>so</thinking>B. a goal", "B. a goal", "so", False),
        ("The answer is B.", "The answer is B.", None, False),
        ("<answer>A</answer><answer>B</answer>", "B", None, False),
        ("<answer>B</answer> or so", "B", None, False),
        ("<think>never ends, A", None, None, False),
        ("<think>never ends<answer>B</answer>", "B", None, False),
        ("<think>and then nothing</think>", None, "and then nothing", False),
        ("<answer></answer>", None, None, False),
        ("  ", None, None, False),
    ],
)
def test_parse(text: str, answer: str | None, thought: str | None, well_formed: bool) -> None:
    parsed = get_method("direct").parse(text)
    assert (parsed.answer, parsed.thought, parsed.well_formed, parsed.calls) == (answer, thought, well_formed, ())


@pytest.mark.parametrize(
    ("text", "stop_reason", "accuracy"),
    [
        ("<answer>B</answer>", StopReason.ANSWER, 1.0),
        ("A goal, so the answer is B", StopReason.ANSWER, 1.0),
        ("<answer>A</answer>", StopReason.ANSWER, 0.0),
        ('<tool_call>{"name": "crop_video", "arguments": {}}</tool_call>', StopReason.ANSWER, 0.0),
        ("", StopReason.NO_ACTION, 0.0),
    ],
)
async def test_rollouts_have_one_turn(
    text: str, stop_reason: StopReason, accuracy: float, make_video: MakeVideo
) -> None:
    method = get_method("direct")
    sample = replace(SAMPLE, video_path=make_video(num_frames=40))
    trajectory = await execute(method, sample, [text, "<answer>B</answer>"])
    assert (trajectory.stop_reason, len(trajectory.turns), len(trajectory.initial_frames)) == (stop_reason, 1, 16)
    assert await method.score(trajectory, sample) == {"score": accuracy, "accuracy": accuracy}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("I look at the options one by one. First I see a goal", None),
        ("B", "B"),
        ("<answer>B</answer> because", "B"),
        ("<think>A or B?</think>First I see a goal", None),
    ],
)
async def test_a_reply_that_was_cut_has_no_open_answer(text: str, answer: str | None, make_video: MakeVideo) -> None:
    episode = Episode(get_method("direct"), replace(SAMPLE, video_path=make_video(num_frames=40)))
    await episode.start()
    await episode.step(text, truncated=True)
    stop_reason = StopReason.RESPONSE_BUDGET if answer is None else StopReason.ANSWER
    assert (episode.trajectory.answer, episode.trajectory.stop_reason) == (answer, stop_reason)
    assert not episode.trajectory.flags


async def test_open_questions_need_a_judge_and_partly_right_is_wrong(make_video: MakeVideo) -> None:
    method = get_method("direct")
    sample = replace(OPEN, video_path=make_video(num_frames=40))
    trajectory = await execute(method, sample, ["<answer>someone runs</answer>"])
    with pytest.raises(UsageError, match="needs a judge"):
        await method.score(trajectory, sample)
    assert await method.score(trajectory, sample, PartlyRight()) == zero_reward(method)


async def test_a_video_that_cannot_be_read_earns_nothing() -> None:
    method = get_method("direct")
    sample = replace(SAMPLE, video_path="/nowhere.mp4")
    trajectory = await execute(method, sample, ["<answer>B</answer>"])
    assert trajectory.stop_reason is StopReason.VIDEO_ERROR
    assert await method.score(trajectory, sample) == zero_reward(method)
