"""The method without tools: what it shows, what it takes for an answer, and what that earns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import UsageError
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

VIDEO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=1920, height=1080)
SAMPLE = Sample("What happens?\nA. nothing\nB. a goal", "B", "video.mp4", "mc", options=("nothing", "a goal"))
OPEN = replace(SAMPLE, question="What happens?", ground_truth="a goal", question_type="open", options=())


class PartlyRight:
    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        return AnswerLabel.PARTIAL


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_turns", 2), ("initial_frames", 0), ("box", [0, 360]), ("compat", "reference"), ("max_turn_tokens", 0)],
)
def test_wrong_values_are_named(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"Direct\.{field} .*got"):
        get_method("direct", **{field: value})


def test_first_look_spans_the_video_at_the_size_of_the_published_code() -> None:
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


async def test_open_questions_need_a_judge_and_partly_right_is_wrong(make_video: MakeVideo) -> None:
    method = get_method("direct")
    sample = replace(OPEN, video_path=make_video(num_frames=40))
    trajectory = await execute(method, sample, ["<answer>someone runs</answer>"])
    with pytest.raises(UsageError, match="needs a judge"):
        await method.score(trajectory, sample)
    assert await method.score(trajectory, sample, PartlyRight()) == method.zero_reward()


async def test_a_video_that_cannot_be_read_earns_nothing() -> None:
    method = get_method("direct")
    sample = replace(SAMPLE, video_path="/nowhere.mp4")
    trajectory = await execute(method, sample, ["<answer>B</answer>"])
    assert trajectory.stop_reason is StopReason.VIDEO_ERROR
    assert await method.score(trajectory, sample) == method.zero_reward()
