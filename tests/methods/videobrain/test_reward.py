"""VideoBrain's reward: classes of questions, open questions, failures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.methods.doubles import StubJudge
from tests.methods.videobrain.scripted import COMPATS, QUESTION, RIGHT, RIGHT_WITH_A_CALL, WRONG, WRONG_WITH_A_CALL, run
from tests.turns.videobrain import answer, uniform
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import (
    JudgeError,
    UsageError,
)
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.types import (
    AnswerLabel,
    Sample,
    StopReason,
    Trajectory,
)
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method
from verl_video_tools.methods.videobrain import VideoBrain


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


async def test_several_classes_are_none(make_video: MakeVideo) -> None:
    """As NumPy has them, they are neither true nor false."""
    sample = Sample("?", "B", make_video(), "mc", extra_info={"classification": np.array(["e", "f"])})
    reward = await VideoBrain().score(await execute(VideoBrain(), sample, RIGHT_WITH_A_CALL), sample)
    assert reward["behavior"] == 0.0


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
        "behavior": 0.2,  # partly right is wrong for the behaviour
    }
    assert partly.answers == ["a shot"]


@COMPATS
async def test_no_judge_is_asked_where_the_gate_fails(make_video: MakeVideo, compat: str) -> None:
    judge = StubJudge(AnswerLabel.CORRECT)
    reward = await score_open(["<answer>a shot</answer>"], judge, make_video(), compat=compat)
    assert reward == zero_reward(get_method("videobrain")) and judge.answers == []


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
    torch = pytest.importorskip("torch")
    groups = {"a": [RIGHT] * 6 + [RIGHT_WITH_A_CALL] * 2, "f": [RIGHT_WITH_A_CALL] * 6 + [RIGHT] * 2}
    for classification, scripts in groups.items():
        scores = [(await run(make_video(), turns, "strict", classification))[1]["score"] for turns in scripts]
        advantages, _ = core_algos.compute_grpo_outcome_advantage(
            token_level_rewards=torch.tensor(scores)[:, None],
            response_mask=torch.ones(8, 1),
            index=np.array(["group"] * 8),
        )
        assert advantages[:, 0].tolist() == pytest.approx([0.5401] * 6 + [-1.6202] * 2, abs=1e-3)
