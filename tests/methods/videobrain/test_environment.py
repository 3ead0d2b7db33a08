"""What VideoBrain's tools show and refuse, and what becomes of a search that fails. The video has 3000 frames at 30 per
second."""

from typing import Any

import pytest

from tests.methods.doubles import ScoringRetriever
from tests.methods.frame_index import awaited
from tests.methods.videobrain.scripted import COMPATS, LEGACY, QUESTION, run
from tests.turns.videobrain import answer, clip, uniform
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import (
    RetrievalError,
    UnreadableVideoError,
)
from verl_video_tools.core.types import (
    PixelEnvelope,
    Sample,
    StopReason,
    Trajectory,
    VideoInfo,
)
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method
from verl_video_tools.methods.videobrain import VideoBrain


def shown(trajectory: Trajectory) -> list[int] | str:
    """Frames of the first call, or the code of its error."""
    record = trajectory.calls()[0]
    return [frame.index for frame in record.frames] if record.ok else str(record.error).split(":")[0]


@pytest.mark.parametrize(
    ("start", "end", "strict", "reference"),
    [
        (0, 100, [0, 14, 28, 42, 56, 70, 84, 99], None),
        (0, 8, [0, 1, 2, 3, 4, 5, 6, 7], None),
        (0, 7, "segment_too_short", None),
        (2990, 9999, "out_of_range", [2990, 2991, 2992, 2993, 2995, 2996, 2997, 2999]),
        (2992, 3000, [2992, 2993, 2994, 2995, 2996, 2997, 2998, 2999], None),
        (2995, 9999, "out_of_range", "segment_too_short"),
        (3000, 4000, "out_of_range", None),
        (-1, 100, "out_of_range", None),
        (100, 5, "reversed_segment", None),
        ("5", 105.9, "malformed_call", [5, 19, 33, 47, 61, 75, 89, 104]),
        (5.0, 105.9, [5, 19, 33, 47, 61, 75, 89, 104], None),
        (None, 100, "malformed_call", None),
        (True, 100, "malformed_call", [1, 15, 29, 43, 57, 71, 85, 99]),
        ("5.5", 100, "malformed_call", None),
        (" 5 ", 105, "malformed_call", [5, 19, 33, 47, 61, 75, 89, 104]),
    ],
)
async def test_uniform_sample(
    make_video: MakeVideo, start: Any, end: Any, strict: list[int] | str, reference: list[int] | str | None
) -> None:
    for compat, expected in (("strict", strict), ("reference", strict if reference is None else reference)):
        trajectory, _ = await run(make_video(), [uniform(start, end)], compat)
        assert shown(trajectory) == expected, compat
        assert trajectory.stop_reason == ("script_exhausted" if isinstance(expected, list) else "invalid_action")


@COMPATS
@pytest.mark.parametrize(
    ("num_frames", "start", "end", "candidates", "expected"),
    [
        (3000, 0, 3000, 128, [448, 708, 1416, 2125]),
        (20_000, 0, 20_000, 256, [2352, 4705, 10_273, 18_195]),
        (3078, 2800, 3078, 128, [2841, 2865, 2930, 2996]),
        (3000, 10, 13, 3, [10, 11, 12]),  # no least length, unlike uniform_sample
    ],
)
async def test_clip_sample(
    num_frames: int, start: int, end: int, candidates: int, expected: list[int], compat: str
) -> None:
    retriever = ScoringRetriever()
    method = get_method("videobrain", compat=compat)
    info = VideoInfo(num_frames / 30, num_frames, 30.0, 1920, 1080)
    plan = await method.tools(info)["clip_sample"].plan(
        {"start_frame": start, "end_frame": end, "prompt": " red circle "}, tool_context(info, retriever)
    )
    assert plan.frames is not None and list(plan.frames.indices or ()) == expected
    assert retriever.queries == [("red circle", candidates, 4, method.tool_deadline_seconds)]
    assert plan.result == {"start_frame": start, "end_frame": end, "prompt": "red circle"}


@pytest.mark.parametrize(
    ("start", "end", "candidates"),
    [(0, 20_000, 256), (0, 19_999, 128), (10_000, 20_000, 128), (0, 100, 100)],  # by the range, not by the video
)
async def test_how_many_candidates(start: int, end: int, candidates: int) -> None:
    retriever, info = ScoringRetriever(), VideoInfo(1000.0, 30_000, 30.0, 640, 360)
    tool = get_method("videobrain").tools(info)["clip_sample"]
    await tool.plan({"start_frame": start, "end_frame": end, "prompt": "dog"}, tool_context(info, retriever))
    assert retriever.queries[0][1] == candidates


def tool_context(info: VideoInfo, retriever: ScoringRetriever) -> Any:
    from verl_video_tools.core.types import ToolContext

    return ToolContext(info, Sample("?", "B", "v.mp4", "mc"), PixelEnvelope(), awaited(lambda _: 0), retriever)


async def test_clip_sample_shows_what_was_found_in_order_of_time(make_video: MakeVideo) -> None:
    trajectory, _ = await run(make_video(), [clip(0, 3000, "dog"), answer()])
    assert shown(trajectory) == [448, 708, 1416, 2125]
    observation = trajectory.turns[0].observation or ""
    assert observation.endswith("\nframe 448: <image>\nframe 708: <image>\nframe 1416: <image>\nframe 2125: <image>")


@COMPATS
async def test_a_long_prompt_is_no_error(make_video: MakeVideo, compat: str) -> None:
    trajectory, _ = await run(make_video(), [clip(0, 3000, "dog " * 80), answer()], compat)
    assert trajectory.calls()[0].ok


@COMPATS
async def test_the_fifth_call_is_the_last(make_video: MakeVideo, compat: str) -> None:
    turns = [uniform(start, start + 100) for start in range(0, 600, 100)]
    trajectory, reward = await run(make_video(), turns, compat)
    assert (trajectory.stop_reason, reward["score"]) == (StopReason.MAX_TURNS, 0.0)
    observations = [turn.observation for turn in trajectory.turns]
    assert ["No call is left" in (text or "") for text in observations] == [False] * 4 + [True, False]
    assert ["call a tool again" in (text or "") for text in observations] == [True] * 4 + [False, False]
    assert [call.ok for call in trajectory.calls()] == [True] * 5 + [False]


async def test_frames_are_chosen_as_published(make_video: MakeVideo) -> None:
    """The published environment still executes FrameThinker's zoom; no checkpoint of VideoBrain is trained on it."""
    trajectory, _ = await run(make_video(), [LEGACY], "reference")
    assert shown(trajectory) == "malformed_call"


async def test_several_calls_in_a_turn_are_refused_and_may_be_told(make_video: MakeVideo) -> None:
    turns = [uniform(0, 100) + clip(0, 100, "dog"), uniform(0, 100), answer()]
    trajectory, reward = await run(make_video(), turns, end_on_call_error=False)
    assert [str(record.error).split(":")[0] for record in trajectory.calls()] == ["multiple_calls"] * 2 + ["None"]
    assert "Error: multiple_calls: 2 calls in one turn" in (trajectory.turns[0].observation or "")
    assert (trajectory.stop_reason, reward["score"]) == (StopReason.ANSWER, 0.0)


@pytest.mark.parametrize(
    ("tool_names", "executed"),
    [
        (["uniform_sample"], ["uniform_sample"]),
        (["clip_sample"], ["clip_sample"]),
        (["clip_sample", "uniform_sample"], ["uniform_sample", "clip_sample"]),
    ],
)
@COMPATS
async def test_the_tools_are_those_asked_for(
    make_video: MakeVideo, tool_names: list[str], executed: list[str], compat: str
) -> None:
    turns = [uniform(0, 100), clip(0, 3000, "dog"), answer()]
    trajectory, _ = await run(
        make_video(), turns, compat, "f", tool_names=tool_names, end_on_call_error=False, direct_behavior=[0] * 4
    )
    assert [record.name for record in trajectory.executed_calls()] == executed
    refused = {str(record.error).split(":")[0] for record in trajectory.calls() if not record.ok}
    assert refused <= {"unknown_tool"}


async def run_failing(video: str, retriever: ScoringRetriever | None, compat: str) -> tuple[Trajectory, VideoBrain]:
    method = get_method("videobrain", compat=compat)
    assert isinstance(method, VideoBrain) and method.end_on_call_error
    sample = Sample(QUESTION, "B", video, "mc", extra_info={"classification": "f"})
    return await execute(method, sample, [clip(0, 3000, "dog"), uniform(0, 100), answer()], retriever), method


@COMPATS
@pytest.mark.parametrize(
    ("retriever", "error"),
    [
        (None, "retrieval_error: no retriever is set up"),
        (ScoringRetriever(RetrievalError("no encoder at /data/goal.mp4")), "retrieval_error: no encoder"),
    ],
)
async def test_a_failed_search_is_told_and_the_rollout_goes_on(
    make_video: MakeVideo, retriever: ScoringRetriever | None, error: str, compat: str
) -> None:
    """No frame stands in for those that could not be found, and the policy is not blamed, but does not train on it."""
    trajectory, method = await run_failing(make_video(), retriever, compat)
    failed, executed = trajectory.calls()
    assert (failed.ok, failed.frames) == (False, []) and str(failed.error).startswith(error)
    assert (trajectory.turns[0].observation or "").startswith("Error: retrieval_error: frames could not be searched\n")
    assert executed.ok and trajectory.stop_reason is StopReason.ANSWER
    assert trajectory.flags == ["retrieval_error"]
    assert method.gate(trajectory).fault is None


@COMPATS
async def test_candidates_that_cannot_be_decoded_end_the_rollout_as_a_video_error(
    make_video: MakeVideo, compat: str
) -> None:
    retriever = ScoringRetriever(UnreadableVideoError("broken at 12 s"))
    trajectory, _ = await run_failing(make_video(), retriever, compat)
    assert trajectory.stop_reason is StopReason.VIDEO_ERROR and "video_error" in trajectory.flags
    assert trajectory.error == "video_error: broken at 12 s"


async def test_a_prompt_of_null_is_none(make_video: MakeVideo) -> None:
    for compat in ("strict", "reference"):
        assert shown((await run(make_video(), [clip(0, 3000, None)], compat))[0]) == "malformed_call"


async def test_a_refused_call_is_still_the_policys_fault(make_video: MakeVideo) -> None:
    trajectory, _ = await run(make_video(), [clip(100, 5, "dog"), answer()])
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.INVALID_ACTION, [])
