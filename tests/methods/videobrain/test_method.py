"""VideoBrain under scripted policies: every acceptance case that needs no tokens, strict and as published.

J with a number names one of the acceptance cases that the project started from. The video has 3000 frames at 30 per
second.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.methods.doubles import ScoringRetriever, StubJudge
from tests.methods.frame_index import awaited
from tests.turns.tagged import tool_call
from tests.turns.videobrain import answer, clip, think, uniform
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import (
    CallError,
    JudgeError,
    RetrievalError,
    UnreadableVideoError,
    UsageError,
)
from verl_video_tools.core.types import (
    AnswerLabel,
    CallRecord,
    FrameRecord,
    ImagePart,
    PixelEnvelope,
    Sample,
    StopReason,
    ToolOutcome,
    Trajectory,
    VideoInfo,
    content_text,
)
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method
from verl_video_tools.methods.videobrain import VideoBrain
from verl_video_tools.methods.videobrain.gate import reference_text_gate

QUESTION = "What happens?\nA. nothing\nB. a goal\nC. a foul"
COMPATS = pytest.mark.parametrize("compat", ["strict", "reference"])


# ------------------------------------------------------------------------------------------------------------- scripts


async def run(
    video: str, turns: list[str], compat: str = "strict", classification: str | None = "a", **fields: Any
) -> tuple[Trajectory, dict[str, float]]:
    method = get_method("videobrain", compat=compat, **fields)
    sample = Sample(QUESTION, "B", video, "mc", extra_info={"classification": classification})
    trajectory = await execute(method, sample, turns, ScoringRetriever())
    return trajectory, await method.score(trajectory, sample)


# ------------------------------------------------------------------------------------------------------ the format gate


@COMPATS
@pytest.mark.parametrize(
    ("turns", "num_calls"),
    [
        pytest.param([answer()], 0, id="no call"),
        pytest.param([uniform(0, 100), answer()], 1, id="one call"),
        pytest.param([*(uniform(start, start + 100) for start in range(0, 500, 100)), answer()], 5, id="five calls"),
        pytest.param([uniform(0, 100), answer("C")], 1, id="a wrong answer"),
        pytest.param([uniform(10, 100), uniform(11, 102), answer()], 2, id="both ends a frame or two apart"),
        pytest.param([uniform(10, 100), uniform(12, 100), answer()], 2, id="one end two frames apart"),
        pytest.param([clip(0, 100, "dog"), clip(200, 400, "Dog"), answer()], 2, id="a prompt in other case"),
        pytest.param([clip(0, 100, "dog"), uniform(0, 100), answer()], 2, id="another tool on the same segment"),
        pytest.param([uniform(0, 100, num_frame=20), answer()], 1, id="an argument too many, ignored"),
        pytest.param(["hello " + uniform(0, 100) + " well", "so " + answer() + " ok"], 1, id="text around the tags"),
    ],
)
async def test_the_gate_lets_pass(make_video: MakeVideo, turns: list[str], num_calls: int, compat: str) -> None:
    trajectory, reward = await run(make_video(), turns, compat)
    assert reward["format"] == 0.05
    assert get_method("videobrain", compat=compat).gate(trajectory).num_calls == num_calls
    assert len(trajectory.executed_calls()) == num_calls


BROKEN = think('<tool_call>{"name": "uniform_sample", </tool_call>')
LEGACY = think('<tool_call>{"action": "choose_frames", "frame_range": [0, 100]}</tool_call>')


@COMPATS
@pytest.mark.parametrize(
    ("turns", "stop"),
    [
        pytest.param([uniform(0, 100), uniform(0, 100), answer()], "answer", id="the same call twice"),
        pytest.param([uniform(10, 100), uniform(11, 101), answer()], "answer", id="within a frame"),
        pytest.param([uniform(9, 90), uniform(200, 300), uniform(10, 91), answer()], "answer", id="any earlier one"),
        pytest.param([clip(0, 100, "dog"), clip(200, 400, "dog"), answer()], "answer", id="the same prompt twice"),
        pytest.param(
            [clip(0, 100, "dog"), clip(200, 400, " dog "), answer()], "answer", id="the same prompt but for white space"
        ),
        pytest.param([uniform(0, 100)], "script_exhausted", id="no answer"),
        pytest.param([think("<answer>B</answer>", "  ")], "answer", id="blank thought"),
        pytest.param([answer(" \n")], "no_action", id="blank answer"),
        pytest.param(["<answer>B</answer>"], "answer", id="an answer without a thought"),
        pytest.param(
            [uniform(0, 100) + "<answer>B</answer>"], "script_exhausted", id="a call and an answer after one thought"
        ),
        pytest.param([uniform(100, 100), answer()], "invalid_action", id="an empty segment"),
        pytest.param([BROKEN, answer()], "invalid_action", id="malformed JSON"),
        pytest.param([think(tool_call("zoom")), answer()], "invalid_action", id="unknown tool"),
        pytest.param(
            [think("<tool_call>[1, 2]</tool_call>"), answer()], "invalid_action", id="a JSON list for an object"
        ),
        pytest.param(
            [think('<tool_call>{"name": "uniform_sample", "arguments": null}</tool_call>'), answer()],
            "invalid_action",
            id="arguments null",
        ),
        pytest.param([clip(0, 100, " "), answer()], "invalid_action", id="blank prompt"),
        pytest.param([uniform(-1, 100), answer()], "invalid_action", id="a negative start ends it in the environment"),
        pytest.param(
            [think("<answer>B</answer>", "I should emit <answer>")], "answer", id="a thought with a literal tag"
        ),
        pytest.param(["so what"], "no_action", id="neither a call nor an answer"),
        pytest.param([uniform(0, 100), answer() + answer("A") + "<answer>"], "answer", id="unbalanced tags"),
    ],
)
async def test_the_gate_refuses(make_video: MakeVideo, turns: list[str], stop: str, compat: str) -> None:
    """Every component is 0 then, whatever the answer."""
    trajectory, reward = await run(make_video(), turns, compat)
    assert reward == {"score": 0.0, "accuracy": 0.0, "format": 0.0, "behavior": 0.0}
    assert trajectory.stop_reason == stop


@pytest.mark.parametrize(
    ("turns", "strict", "reference"),
    [
        pytest.param(
            [LEGACY, answer()], ("invalid_action", 0.0), ("answer", 0.0), id="an action object in the older form"
        ),
        pytest.param(
            [think() + uniform(0, 100) + clip(0, 100, "dog"), answer()],
            ("invalid_action", 0.0),
            ("answer", 0.0),
            id="three thoughts for two calls",
        ),
        pytest.param(
            [uniform(0, 100) + clip(0, 100, "dog"), answer()],
            ("invalid_action", 0.0),
            ("answer", 1.05),
            id="two calls in one turn: both count, the last is executed",
        ),
        pytest.param([clip(0, 100, 5), answer()], ("invalid_action", 0.0), ("answer", 0.0), id="a number for a prompt"),
        pytest.param(
            [uniform(2990, 9999), answer()], ("invalid_action", 0.0), ("answer", 1.05), id="an end beyond the video"
        ),
        pytest.param(
            [uniform("5", 105.9), answer()],
            ("invalid_action", 0.0),
            ("answer", 1.05),
            id="a start in quotes, an end with a fraction",
        ),
        pytest.param([answer("C") + answer("B")], ("answer", 0.0), ("answer", 1.55), id="two answers in one turn"),
        pytest.param(
            ["<answer>B</answer>" + think()], ("answer", 0.0), ("answer", 1.55), id="the thought after the answer"
        ),
        pytest.param(
            [*(uniform(start, start + 100) for start in range(0, 500, 100)), uniform(0, 900) + answer()],
            ("max_turns", 0.0),
            ("max_turns", 1.05),
            id="an answer beside a sixth call",
        ),
    ],
)
async def test_where_the_published_gate_or_environment_differs(
    make_video: MakeVideo, turns: list[str], strict: tuple[str, float], reference: tuple[str, float]
) -> None:
    for compat, expected in (("strict", strict), ("reference", reference)):
        trajectory, reward = await run(make_video(), turns, compat)
        assert (trajectory.stop_reason, reward["score"]) == (expected[0], pytest.approx(expected[1])), compat


@pytest.mark.parametrize(
    ("turns", "passes"),
    [
        ([uniform(-1, 100), answer()], True),  # ranges are the environment's business
        ([uniform(0, 100, num_frame=20), answer()], True),
        ([uniform("5", 105.9), answer()], True),
        ([uniform("5.5", 100), answer()], False),
        ([uniform(None, 100), answer()], False),
        ([uniform(float("inf"), 100), answer()], False),
        ([think('<tool_call>{"name": ["uniform_sample"], "arguments": {}}</tool_call>'), answer()], False),
        ([think("<tool_call> </tool_call>"), answer()], False),
        ([think("<tool_call>" + "[" * 100_000 + "</tool_call>"), answer()], False),
        ([clip(0, 100, 5), answer()], False),
        ([], False),
    ],
)
def test_the_published_text_gate_never_raises(turns: list[str], passes: bool) -> None:
    assert (reference_text_gate([(turn, "") for turn in turns]).fault is None) is passes


# ----------------------------------------------------------------------------------------------------------- the reward

RIGHT, RIGHT_WITH_A_CALL = [answer()], [uniform(0, 100), answer()]
WRONG, WRONG_WITH_A_CALL = [answer("C")], [uniform(0, 100), answer("C")]


@COMPATS
@pytest.mark.parametrize(
    ("classifications", "scores"),
    [
        pytest.param(("a", "b", "A", " b "), (1.55, 1.05, 0.05, 0.05), id="classes a and b: direct"),
        pytest.param(("e",), (1.55, 1.55, 0.05, 0.05), id="class e: adaptive"),
        pytest.param(("f", "g", "h"), (1.05, 1.55, 0.05, 0.25), id="classes f, g, h: active"),
        pytest.param(("c", "d", "", None, "x"), (1.05, 1.05, 0.05, 0.05), id="any other class"),
    ],
)
async def test_behaviour(
    make_video: MakeVideo, classifications: tuple[str | None, ...], scores: tuple[float, ...], compat: str
) -> None:
    scripts = (RIGHT, RIGHT_WITH_A_CALL, WRONG, WRONG_WITH_A_CALL)
    for classification in classifications:
        for turns, score in zip(scripts, scores, strict=True):
            _, reward = await run(make_video(), turns, compat, classification)
            assert reward["score"] == pytest.approx(score)
            assert reward["score"] == sum(reward[name] for name in VideoBrain.reward_components)


@pytest.mark.parametrize(
    ("classification", "strict"), [("direct", 1.05), ("Adaptive", 1.55), ("active", 1.55), ("activ", 1.05)]
)
async def test_names_of_classes_are_ours(make_video: MakeVideo, classification: str, strict: float) -> None:
    for compat, score in (("strict", strict), ("reference", 1.05)):  # the published code knows letters only
        _, reward = await run(make_video(), RIGHT_WITH_A_CALL, compat, classification)
        assert reward["score"] == pytest.approx(score)


async def test_the_behaviour_matrix_is_configuration(make_video: MakeVideo) -> None:
    fields = {"direct_behavior": [1, 2, 3, 4], "format_reward": 0, "accuracy_reward": 0}
    scripts = (RIGHT, RIGHT_WITH_A_CALL, WRONG, WRONG_WITH_A_CALL)
    scores = [(await run(make_video(), turns, **fields))[1]["score"] for turns in scripts]
    assert scores == [1.0, 2.0, 3.0, 4.0]


async def score_open(
    turns: list[str], judge: StubJudge, video: str, classification: str = "f", **fields: Any
) -> dict[str, float]:
    method = get_method("videobrain", **fields)
    sample = Sample("What is it?", "a goal", video, "open", extra_info={"classification": classification})
    return await method.score(await execute(method, sample, turns), sample, judge)


async def test_open_questions_are_graded_by_the_judge(make_video: MakeVideo) -> None:
    video, partly = make_video(), StubJudge(AnswerLabel.PARTIAL)
    turns = [uniform(0, 100), answer("a shot")]
    assert await score_open(turns, partly, video) == {
        "score": pytest.approx(0.75),
        "accuracy": 0.5,
        "format": 0.05,
        "behavior": 0.2,  # partly right is wrong for the behaviour,
    }
    assert (await score_open(turns, partly, video, right_from=0.5))["behavior"] == 0.5  # unless configured otherwise
    assert partly.answers == ["a shot", "a shot"]


@COMPATS
async def test_no_judge_is_asked_where_the_gate_fails(make_video: MakeVideo, compat: str) -> None:
    judge = StubJudge(AnswerLabel.CORRECT)
    reward = await score_open(["<answer>a shot</answer>"], judge, make_video(), compat=compat)
    assert reward == get_method("videobrain").zero_reward() and judge.answers == []


async def test_a_judge_without_a_verdict_is_no_wrong_answer(make_video: MakeVideo) -> None:
    with pytest.raises(JudgeError, match="out of reach"):
        await score_open([answer("a shot")], StubJudge(None), make_video())


async def test_an_open_question_needs_a_judge() -> None:
    sample = Sample("What is it?", "a goal", "video.mp4", "open")
    with pytest.raises(UsageError, match="needs a judge"):
        await get_method("videobrain").score(Trajectory("videobrain", QUESTION), sample)


async def test_a_missing_video_earns_nothing(tmp_path: Path) -> None:
    trajectory, reward = await run(str(tmp_path / "none.mp4"), RIGHT)
    assert trajectory.stop_reason is StopReason.VIDEO_ERROR and reward["score"] == 0.0


async def test_where_all_are_right_a_call_that_was_not_needed_costs(make_video: MakeVideo) -> None:
    """verl's own GRPO advantages of a group on a direct question: two of eight called a tool."""
    core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    groups = {"a": [RIGHT] * 6 + [RIGHT_WITH_A_CALL] * 2, "f": [RIGHT_WITH_A_CALL] * 6 + [RIGHT] * 2}
    for classification, scripts in groups.items():
        scores = [(await run(make_video(), turns, "strict", classification))[1]["score"] for turns in scripts]
        advantages, _ = core_algos.compute_grpo_outcome_advantage(
            token_level_rewards=torch.tensor(scores)[:, None],
            response_mask=torch.ones(8, 1),
            index=np.array(["group"] * 8),
        )
        assert advantages[:, 0].tolist() == pytest.approx([0.5401] * 6 + [-1.6202] * 2, abs=1e-3)


# ------------------------------------------------------------------------------------------------------ the environment


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
    ("fields", "start", "end", "candidates"),
    [
        ({}, 0, 19_999, 128),
        ({"clip_long_from_frames": 20_001}, 0, 20_000, 128),  # "above 20,000": paper, and published inference
        ({}, 0, 10_000, 128),
        ({"clip_long_by": "video"}, 0, 10_000, 256),
        ({"clip_candidates": [64, 100]}, 0, 10_000, 64),
        ({"clip_long_by": "video"}, 0, 200, 200),
    ],
)
async def test_how_many_candidates(fields: dict[str, Any], start: int, end: int, candidates: int) -> None:
    retriever, info = ScoringRetriever(), VideoInfo(1000.0, 30_000, 30.0, 640, 360)
    tool = get_method("videobrain", **fields).tools(info)["clip_sample"]
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
    trajectory, _ = await run(make_video(), [LEGACY], "reference")
    assert shown(trajectory) == [1, 15, 29, 43, 57, 71, 85, 99]
    short = think('<tool_call>{"action": "choose_frames", "frame_range": [0, 8]}</tool_call>')
    for turns, code in ((LEGACY, "malformed_call"), (short, "malformed_call")):
        assert shown((await run(make_video(), [turns]))[0]) == code
    assert shown((await run(make_video(), [short], "reference"))[0]) == "segment_too_short"
    before = think('<tool_call>{"action": "choose_frames", "frame_range": [-50, 100]}</tool_call>')
    trajectory, _ = await run(make_video(), [before], "reference")
    assert shown(trajectory) == "out_of_range"
    assert trajectory.stop_reason is not StopReason.VIDEO_ERROR
    nonsense = think('<tool_call>{"action": "choose_frames", "frame_range": [0]}</tool_call>')
    assert shown((await run(make_video(), [nonsense], "reference"))[0]) == "malformed_call"


async def test_several_calls_in_a_turn_are_refused_and_may_be_told(make_video: MakeVideo) -> None:
    turns = [uniform(0, 100) + clip(0, 100, "dog"), uniform(0, 100), answer()]
    trajectory, reward = await run(make_video(), turns, end_on_call_error=False)
    assert [str(record.error).split(":")[0] for record in trajectory.calls()] == ["multiple_calls"] * 2 + ["None"]
    assert "Error: multiple_calls: 2 calls in one turn" in (trajectory.turns[0].observation or "")
    assert (trajectory.stop_reason, reward["score"]) == (StopReason.ANSWER, 0.0)


# ------------------------------------------------------------------------------------------------------------ ablations


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


@pytest.mark.parametrize("tool_names", [["uniform_sample"], ["clip_sample"]])
def test_the_prompt_tells_of_the_tools_that_there_are(tool_names: list[str]) -> None:
    method = get_method("videobrain", tool_names=tool_names)
    system, _ = messages(tool_names=tool_names)
    missing = {"uniform_sample": "clip_sample", "clip_sample": "uniform_sample"}[tool_names[0]]
    assert tool_names[0] in system and missing not in system
    assert method.searches == (tool_names == ["clip_sample"])
    refusal = method.message_templates()["refusal"].text
    assert ("range or prompt" in refusal) == method.searches
    info = VideoInfo(100.0, 3000, 30.0, 1920, 1080)
    dearest = method.max_cost_call(info, Sample("?", "B", "v.mp4", "mc"), PixelEnvelope())
    assert dearest is not None and len(dearest.indices or ()) == {"uniform_sample": 8, "clip_sample": 4}[tool_names[0]]


async def test_without_a_gate_the_answer_counts_whatever_the_form(make_video: MakeVideo) -> None:
    """Ablation "w/o Reward Format Check": form neither earns nor costs anything."""
    repeated = [uniform(0, 100), uniform(0, 100), "<answer>B</answer>"]
    for turns, score in ((repeated, 1.5), (RIGHT_WITH_A_CALL, 1.5), (WRONG_WITH_A_CALL, 0.2), (["so what"], 0.0)):
        for compat in ("strict", "reference"):
            _, reward = await run(make_video(), turns, compat, "f", format_gate=False)
            assert (reward["score"], reward["format"]) == (pytest.approx(score), 0.0), (turns, compat)
    assert (await run(make_video(), repeated, "strict", "f"))[1]["score"] == 0.0


# --------------------------------------------------------------------------------------------------- failures of search


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


# ---------------------------------------------------------------------------------------------------- prompts and sizes


def messages(**fields: Any) -> tuple[str, str]:
    info = VideoInfo(100.1, 2400, 24000 / 1001, 1920, 1080)
    images = [ImagePart(FrameRecord(index, index / 24, 640, 360)) for index in (0, 160)]
    system, user = get_method("videobrain", **fields).prompt(Sample(QUESTION, "B", "/d/v.mp4", "mc"), info, images)
    assert (system.role, user.role) == ("system", "user")
    return content_text(system.content), content_text(user.content)


def test_prompt() -> None:
    system, user = messages()
    facts = "The video has 2400 frames at 23.976 frames per second."
    assert user == f"{QUESTION}\n\n{facts}\n\nframe 0: <image>\nframe 160: <image>"
    for phrase in ("you see 16 frames", "Shows 8 frames", "the best 4", "at most 5 in all"):
        assert phrase in system
    assert "{call_frames}" not in system and "/d/" not in system + user


def test_the_prompts_examples_follow_their_own_grammar() -> None:
    system, _ = messages()
    texts = system.split("Example of a turn that ")[1:]
    samples, searches, ends = (VideoBrain().parse("\n".join(text.split("\n\n")[0].splitlines()[1:])) for text in texts)
    assert all(turn.well_formed for turn in (samples, searches, ends))
    assert [samples.calls[0].name, searches.calls[0].name, ends.answer] == ["uniform_sample", "clip_sample", "C"]


def test_the_prompt_says_nothing_of_the_reward() -> None:
    assert "cost" not in "".join(messages())


IMAGE = ImagePart(FrameRecord(7, 0.25, 32, 32))


@pytest.mark.parametrize("turns_left", [3, 1])
def test_observations(turns_left: int) -> None:
    observe = get_method("videobrain").observe
    good = observe([ToolOutcome(CallRecord("uniform_sample", {}, ok=True), (IMAGE, IMAGE))], turns_left)
    assert content_text(good).endswith("\nframe 7: <image>\nframe 7: <image>")
    bad = observe(
        [ToolOutcome(CallRecord("x", {}, ok=False, error=CallError("unknown_tool", "no tool x")))], turns_left
    )
    assert content_text(bad).startswith("Error: unknown_tool: no tool x\n")
    for content in (good, bad):
        assert ("No call is left" in content_text(content)) is (turns_left == 1)


@pytest.mark.parametrize("code", ["video_error", "deadline", "retrieval_error"])
def test_a_failure_is_told_without_the_files_name(code: str) -> None:
    record = CallRecord("clip_sample", {}, ok=False, error=CallError(code, "cannot read /data/goal.mp4"))
    text = content_text(get_method("videobrain").observe([ToolOutcome(record)], 2))
    assert text.startswith(f"Error: {code}: ") and "/data" not in text


def test_prompt_file(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text('{max_calls} calls {"name": 1}')
    assert messages(prompt_file=str(path))[0] == '5 calls {"name": 1}'


@COMPATS
async def test_the_first_look(make_video: MakeVideo, compat: str) -> None:
    trajectory, _ = await run(make_video(), [], compat)
    expected = [0, 199, 399, 599, 799, 999, 1199, 1399, 1599, 1799, 1999, 2199, 2399, 2599, 2799, 2999]
    assert [frame.index for frame in trajectory.initial_frames] == expected


@pytest.mark.parametrize(
    ("native", "factor", "fit", "stretched"),
    [
        ((1920, 1080), 1, (640, 360), (640, 360)),
        ((1080, 1920), 1, (202, 360), (640, 360)),  # upright: squashed as published
        ((320, 180), 1, (320, 180), (640, 360)),
        ((1920, 1080), 32, (640, 352), (640, 352)),  # Qwen3-VL: 220 tokens
        ((1920, 1080), 28, (644, 364), (644, 364)),
    ],
)
def test_sizes(native: tuple[int, int], factor: int, fit: tuple[int, int], stretched: tuple[int, int]) -> None:
    info = VideoInfo(10.0, 300, 30.0, *native)
    sample = Sample("?", "B", "v.mp4", "mc")
    for fields, size in (({}, fit), ({"aspect": "stretch"}, stretched), ({"compat": "reference"}, stretched)):
        look = get_method("videobrain", **fields).plan_initial_frames(info, sample, PixelEnvelope(factor=factor))
        assert (look.width, look.height) == size


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_turns": 0}, "VideoBrain.max_turns must be at least 1, got 0"),
        ({"initial_frames": 0}, "VideoBrain.initial_frames must be at least 1, got 0"),
        (
            {"clip_candidates": [2, 256]},
            r"clip_candidates must be at least clip_frames each, got \(2, 256\)",
        ),
        ({"right_from": 0}, "VideoBrain.right_from must be above 0, at most 1, got 0.0"),
        ({"direct_behavior": [1, 2, 3]}, "VideoBrain.direct_behavior takes"),
        ({"aspect": "crop"}, "aspect"),
        ({"tool_names": []}, r"tool_names must be one or both of uniform_sample, clip_sample, got \(\)"),
        ({"tool_names": ["clip_sample", "clip_sample"]}, "tool_names must be one or both"),
        ({"tool_names": ["choose_frames"]}, "VideoBrain.tool_names takes"),
    ],
)
def test_impossible_fields(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        get_method("videobrain", **fields)
