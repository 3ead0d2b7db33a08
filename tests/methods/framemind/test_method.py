"""FrameMind: its ladder, and its rewards and loop under scripted policies.

J with a number names one of the acceptance cases that the project started from; a case that depends on a decision of
ours is tested with the alternative as well, where there is a field for it.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

from tests.videos.files import write_video
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import (
    AnswerLabel,
    FrameRecord,
    FrameRequest,
    ImagePart,
    PixelEnvelope,
    RolloutLimits,
    Sample,
    StopReason,
    Trajectory,
    VideoInfo,
    content_text,
)
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method, toolkit
from verl_video_tools.methods.framemind import FrameMind, resolution_ladder
from verl_video_tools.replay import replay
from verl_video_tools.video import Video, envelope_of, image_tokens

QUESTION = "Who opens the door?\nA. a boy\nB. a man\nC. nobody"
INFO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=1920, height=1080)
SAMPLE = Sample(QUESTION, "B", "v.mp4", "mc", ("a boy", "a man", "nobody"))
QWEN_2_5 = Qwen2VLImageProcessor(size={"shortest_edge": 3136, "longest_edge": 12_845_056})
QWEN_3 = Qwen2VLImageProcessor(patch_size=16, size={"shortest_edge": 65_536, "longest_edge": 16_777_216})
PIXELS = {"min_pixels": 50_176, "max_pixels": 200_704}
"""Table E1."""


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> str:
    """60 seconds at 30 frames per second."""
    return str(write_video(tmp_path_factory.mktemp("videos") / "yard.mp4", num_frames=1800, fps=30))


# ------------------------------------------------------------------------------------------------------------- ladder


def test_ladder() -> None:
    sides = [224, 256, 288, 320, 352, 384, 416, 448]
    numbers = [64, 59, 55, 50, 46, 41, 37, 32]
    assert resolution_ladder(8) == list(zip(numbers, sides, strict=True))
    assert FrameMind().ladder() == resolution_ladder(8)
    assert resolution_ladder(1) == [(64, 224)]
    assert resolution_ladder(3, low=(8, 56), high=(4, 112)) == [(8, 56), (6, 84), (4, 112)]
    with pytest.raises(ValueError, match="group_size=0"):
        resolution_ladder(0)


def looks(envelope: PixelEnvelope, **fields: Any) -> list[FrameRequest]:
    method = FrameMind(**fields)
    return [method.for_session(number, 8, False).plan_initial_frames(INFO, SAMPLE, envelope) for number in range(8)]


@pytest.mark.parametrize(
    ("processor", "kwargs", "per_frame", "totals"),
    [
        pytest.param(
            QWEN_2_5,
            PIXELS,
            [64, 81, 100, 121, 169, 196, 225, 256],
            [4096, 4779, 5500, 6050, 7774, 8036, 8325, 8192],
            id="Qwen2.5-VL",
        ),
        pytest.param(
            QWEN_3,
            PIXELS,
            [49, 64, 81, 100, 121, 144, 169, 196],
            [3136, 3776, 4455, 5000, 5566, 5904, 6253, 6272],
            id="Qwen3-VL",
        ),
        pytest.param(
            QWEN_3,
            {},
            [64, 64, 81, 100, 121, 144, 169, 196],
            [4096, 3776, 4455, 5000, 5566, 5904, 6253, 6272],
            id="default bounds",
        ),
    ],
)
def test_tokens_of_the_ladder(processor: Any, kwargs: dict[str, int], per_frame: list[int], totals: list[int]) -> None:
    """Counted by the real image processors; and the dearest rung with its labels and texts fits the recipe's prompt."""
    envelope = envelope_of(processor, kwargs)
    requests = looks(envelope)
    counted = []
    for request in requests:
        picture = np.zeros((request.height, request.width, 3), np.uint8)
        grid_THW = processor(picture, return_tensors="pt", **kwargs)["image_grid_thw"][0]
        counted.append(int(grid_THW.prod()) // processor.merge_size**2)
        assert counted[-1] == image_tokens(request.width, request.height, envelope.factor)
    assert counted == per_frame
    assert [len(request) * tokens for request, tokens in zip(requests, counted, strict=True)] == totals
    label, text = 18, 2000  # "[t=3599.97s]" digit by digit, line end, vision start and end; system prompt and question
    budget = FrameMind.recipe_budget
    dearest = max(len(request) * (tokens + label) for request, tokens in zip(requests, counted, strict=True))
    assert dearest + text <= budget.prompt_tokens
    two_clips = 2 * 20 * (image_tokens(448, 448, envelope.factor) + label)
    assert two_clips + text <= budget.response_tokens
    assert len(requests[0]) + 2 * 20 == 104 <= budget.images, "pictures of the longest rung and two clips"
    assert budget.prompt_tokens + budget.response_tokens <= 32_768, "tokens of a rollout"


def test_rungs_of_a_group() -> None:
    method = FrameMind()
    for order in (range(8), reversed(range(8))):  # nothing but the number in the group decides
        assert all(method.for_session(number, 8, False).rung == number + 1 for number in order)
    assert [method.for_session(number, 3, False).initial_rung() for number in range(3)] == resolution_ladder(3)
    assert method.for_session(9, 8, False).rung == 2, "more rollouts than rungs begin again"
    assert FrameMind(rung=3).for_session(6, 8, False).rung == 3
    assert {method.for_session(number, 4, True) for number in range(4)} == {method}


@pytest.mark.parametrize(
    ("frames", "rung"), [(None, (64, 224)), (64, (64, 224)), (48, (48, 336)), (32, (32, 448)), (96, (96, 224))]
)
def test_validation_rung_by_frames(frames: int | None, rung: tuple[int, int]) -> None:
    assert FrameMind(initial_frames=frames).for_session(0, 1, True).initial_rung() == rung


def test_without_a_ladder_all_rollouts_see_alike() -> None:
    """The paper's baseline: 32 frames, fixed."""
    method = FrameMind(low=(32, 448), high=(32, 448))
    assert {method.for_session(number, 8, False).initial_rung() for number in range(8)} == {(32, 448)}
    assert method.initial_rung() == (32, 448)


@pytest.mark.parametrize("nested", [False, True])
def test_short_videos_show_every_frame_once(nested: bool) -> None:
    info = VideoInfo(2.0, 20, 10.0, 64, 64)
    for rung in (1, 8):
        look = FrameMind(rung=rung, nested_times=nested).plan_initial_frames(info, SAMPLE, PixelEnvelope())
        assert look.indices == tuple(range(20))


def test_times_of_the_rungs() -> None:
    envelope = PixelEnvelope()
    uniform, nested = looks(envelope), looks(envelope, nested_times=True)
    for rung, (plain, within) in enumerate(zip(uniform, nested, strict=True)):
        number = resolution_ladder(8)[rung][0]
        assert plain.indices == tuple(int(index) for index in np.linspace(0, 2999, number))
        assert within.indices is not None and set(within.indices) <= set(uniform[0].indices or ())
        assert (len(within), within.indices[0], within.indices[-1]) == (number, 0, 2999)


def test_pixels_of_a_shared_decode(video: str) -> None:
    with Video(video) as reader:
        method = FrameMind(low=(16, 56), high=(8, 112))
        requests = [
            method.for_session(number, 4, False).plan_initial_frames(reader.info, SAMPLE, PixelEnvelope())
            for number in range(4)
        ]
        together = reader.decode_many(requests)
        for request, batch in zip(requests, together, strict=True):
            np.testing.assert_array_equal(batch.frames_THWC, reader.frames(request).frames_THWC)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"rung": 9}, "rung"),
        ({"rung": 0}, "rung"),
        ({"low": (0, 224)}, "low"),
        ({"call_frames": 7}, "call_frames"),
        ({"exploration_share": 1.5}, "exploration_share"),
        ({"continue_on": "always"}, "continue_on"),
        ({"label_decimals": 7}, "label_decimals"),
        ({"compat": "reference"}, "compat"),
    ],
)
def test_wrong_fields(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        get_method("framemind", **fields)


# ------------------------------------------------------------------------------------------------------------ rollouts

CLIP = "<think>a</think><tool_call>VideoClip(10, 14)</tool_call><turn_sum>b</turn_sum>"
FRAME = "<think>a</think><tool_call>FrameAt(12)</tool_call><turn_sum>b</turn_sum>"
FRAME_0 = FRAME.replace("12", "0")
EMPTY_CLIP = CLIP.replace("10, 14", "0, 0")
BOTH = CLIP.replace("<turn_sum>", "<tool_call>FrameAt(12)</tool_call><turn_sum>")
SUM = "<think>a</think><turn_sum>b</turn_sum>"
BARE_CLIP = "<think>a</think><tool_call>VideoClip(10, 14)</tool_call>"
RIGHT = "<think>a</think><answer>B</answer>"
WRONG = "<think>a</think><answer>A</answer>"
BAD_FORMAT = "<answer>B</answer> so it is"
WRONG_BAD_FORMAT = "<answer>A</answer> so it is"


async def run(video: str, turns: list[str], **fields: Any) -> tuple[Trajectory, dict[str, float]]:
    method = get_method("framemind", low=[4, 56], high=[2, 84], tool_side_pixels=56, **fields)
    sample = Sample(QUESTION, "B", video, "mc", SAMPLE.options)
    trajectory = await execute(method, sample, turns)
    return trajectory, await method.score(trajectory, sample)


@pytest.mark.parametrize(
    ("turns", "fields", "parts"),
    [
        pytest.param([RIGHT], {}, (1, 0, 0, 0), id="right at once"),
        pytest.param([CLIP, FRAME, RIGHT], {}, (1, 0, 1.2, 0.5), id="both tools in three turns"),
        pytest.param([BOTH, RIGHT], {}, (1, 0, 1.2, 0.5), id="both tools in two turns"),
        pytest.param([WRONG], {}, (0, 0, 0, 0), id="wrong at once"),
        pytest.param([CLIP, WRONG], {}, (0, 0, 0.2, 0.5), id="wrong after one tool"),
        pytest.param([CLIP, FRAME, WRONG], {}, (0, 0, 0.24, 0.5), id="wrong after both tools"),
        pytest.param([WRONG_BAD_FORMAT], {}, (0, -1, 0, 0), id="wrong and ill-formed at once"),
        pytest.param(
            [CLIP, FRAME, WRONG_BAD_FORMAT], {}, (0, -1, 0.24, 0.5), id="wrong and ill-formed after both tools"
        ),
        pytest.param([CLIP, FRAME, BAD_FORMAT], {}, (1, -1, 1.2, 0.5), id="right and ill-formed after both tools"),
        pytest.param(
            [BARE_CLIP + "<answer>B</answer>"], {}, (1, 0, 0, 0), id="a call beside the answer is not executed"
        ),
        pytest.param(
            [CLIP, FRAME, WRONG], {"exploration_share": 0.0}, (0, 0, 0, 0.5), id="no share for exploration, wrong"
        ),
        pytest.param(
            [CLIP, FRAME, RIGHT], {"exploration_share": 0.0}, (1, 0, 1.2, 0.5), id="no share for exploration, right"
        ),
        pytest.param([CLIP, CLIP, RIGHT], {}, (1, 0, 1.0, 0.5), id="the same call twice"),
        pytest.param([FRAME_0, EMPTY_CLIP, RIGHT], {}, (1, 0, 1.0, 0.5), id="an empty clip is a frame"),
        pytest.param([FRAME_0, EMPTY_CLIP.replace("0)", "0.001)"), RIGHT], {}, (1, 0, 1.0, 0.5), id="a short one, too"),
        pytest.param([EMPTY_CLIP, CLIP, RIGHT], {}, (1, 0, 1.2, 0.5), id="a frame asked for as a clip, and a clip"),
        pytest.param([SUM, WRONG], {}, (0, 0, 0, 0.5), id="a summary and a wrong answer"),
        pytest.param([FRAME_0, EMPTY_CLIP.replace("0)", "0.034)"), RIGHT], {}, (1, 0, 1.2, 0.5), id="two frames"),
        pytest.param([SUM, RIGHT], {"turn_counting": "summaries"}, (1, 0, 0, 0), id="one summary"),
        pytest.param([SUM, SUM, RIGHT], {"turn_counting": "summaries"}, (1, 0, 0, 0.5), id="two summaries"),
        pytest.param(
            [SUM * 2, SUM * 2, RIGHT], {"turn_counting": "summaries"}, (1, 0, 0, 0), id="four summaries in two turns"
        ),
        pytest.param([CLIP, FRAME.replace("12", "99"), RIGHT], {}, (1, 0, 1.0, 0.5), id="bad calls ignored"),
        pytest.param([CLIP + "words", RIGHT], {}, (1, -1, 1.0, 0.5), id="words between"),
        pytest.param(["nothing"], {}, (0, -1, 0, 0), id="neither a call nor an answer"),
        pytest.param([CLIP, CLIP, CLIP], {}, (0, -1, 0.2, 0.5), id="no answer in the last turn"),
    ],
)
async def test_reward(video: str, turns: list[str], fields: dict[str, Any], parts: tuple[float, ...]) -> None:
    _, reward = await run(video, turns, **fields)
    assert list(reward) == ["score", "accuracy", "format", "tool", "turn"]
    assert list(reward.values()) == pytest.approx([sum(parts), *parts])


async def test_no_rollout(tmp_path: Path) -> None:
    trajectory, reward = await run(str(tmp_path / "gone.mp4"), [RIGHT])
    assert trajectory.stop_reason is StopReason.VIDEO_ERROR
    assert reward == {"score": 0.0, "accuracy": 0.0, "format": 0.0, "tool": 0.0, "turn": 0.0}


@pytest.mark.parametrize(("label", "accuracy"), [("correct", 1.0), ("partial", 1.0), ("incorrect", 0.0)])
async def test_judged_answers_are_right_or_wrong(label: str, accuracy: float) -> None:
    class Stub:
        async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
            return AnswerLabel(label)

    trajectory = Trajectory("framemind", "?", INFO, stop_reason=StopReason.ANSWER, answer="a tall man")
    sample = Sample("Who?", "a man", "v.mp4", "open")
    reward = await FrameMind().score(trajectory, sample, Stub())
    assert reward["accuracy"] == accuracy


# ---------------------------------------------------------------------------------------------------------------- loop


@pytest.mark.parametrize(
    ("turns", "continue_on", "num_turns", "executed", "stop"),
    [
        pytest.param([CLIP, RIGHT], "either", 2, 1, "answer", id="a summary and a call continue"),
        pytest.param([CLIP, RIGHT], "turn_sum", 2, 1, "answer", id="a summary continues by summary"),
        pytest.param([CLIP, RIGHT], "tool_call", 2, 1, "answer", id="a call continues by call"),
        pytest.param(
            ["<think>a</think>", RIGHT], "either", 1, 0, "no_action", id="neither a summary nor an answer stops"
        ),
        pytest.param([CLIP + RIGHT, RIGHT], "either", 1, 0, "answer", id="a call beside the answer stops"),
        pytest.param([CLIP, CLIP, CLIP, RIGHT], "either", 3, 2, "max_turns", id="no turn after the last"),
        pytest.param([BARE_CLIP, RIGHT], "either", 2, 1, "answer", id="a call without a summary"),
        pytest.param([BARE_CLIP, RIGHT], "turn_sum", 1, 0, "no_action", id="a call without a summary, by summary"),
        pytest.param([SUM, RIGHT], "either", 2, 0, "answer", id="a summary without a call"),
        pytest.param([SUM, RIGHT], "tool_call", 1, 0, "no_action", id="a summary without a call, by call"),
    ],
)
async def test_what_goes_on(
    video: str, turns: list[str], continue_on: str, num_turns: int, executed: int, stop: str
) -> None:
    trajectory, _ = await run(video, turns, continue_on=continue_on)
    assert len(trajectory.turns) == num_turns
    assert len(trajectory.executed_calls()) == executed
    assert trajectory.stop_reason == stop


async def test_observations(video: str) -> None:
    trajectory, _ = await run(video, [CLIP, SUM, RIGHT], label_decimals=1)
    clip, none = (turn.observation for turn in trajectory.turns[:2])
    seconds = ["10.0", "10.6", "11.1", "11.7", "12.3", "12.9", "13.4", "14.0"]
    assert clip == "\n".join([*(f"[t={time}s]<image>" for time in seconds), "Turn 2 of 3."])
    assert none == "No frames were asked for.\nTurn 3 of 3."


async def test_errors_are_read_and_the_rollout_goes_on(video: str) -> None:
    calls = (
        "<tool_call>FrameAt(abc)</tool_call><tool_call>VideoClip(20, 15)</tool_call><tool_call>FrameAt(1)</tool_call>"
    )
    trajectory, reward = await run(video, [f"<think>a</think>{calls}<turn_sum>b</turn_sum>", CLIP, RIGHT])
    first, second, third, last = (trajectory.turns[0].observation or "").split("\n")
    for line in (first, second, third):
        assert line.startswith("ERROR: ") and line.endswith(" The video lasts 60.00 seconds.")
    assert ("malformed_call" in first, "reversed_segment" in second, "multiple_calls" in third) == (True, True, True)
    assert last == "Turn 2 of 3."
    assert reward["tool"] == 1.0 and trajectory.stop_reason is StopReason.ANSWER


async def test_labels_tell_the_frame_and_not_the_request(video: str) -> None:
    trajectory, _ = await run(video, [FRAME.replace("12", "12.345"), RIGHT])
    assert trajectory.turns[0].observation == "[t=12.33s]<image>\nTurn 2 of 3."
    trajectory, _ = await run(video, [CLIP.replace("10, 14", "0.0, 0.1"), RIGHT])
    assert (trajectory.turns[0].observation or "").split("\n")[3:] == [
        "[t=0.10s]<image>",
        "This clip shows only 4 different frames.",
        "Turn 2 of 3.",
    ]


def test_replay_of_a_rung(video: str) -> None:
    for settings, frames in (({"rung": 8}, (32, 448)), ({}, (64, 224))):
        result = replay("framemind", video, QUESTION, "B", [RIGHT], settings=settings)
        initial = result["initial_frames"]
        assert (len(initial), initial[0]["width"], initial[0]["height"]) == (frames[0], frames[1], frames[1])
    assert json.loads(json.dumps(result["reward"])) == result["reward"]


def test_prompt() -> None:
    images = [ImagePart(FrameRecord(index, index / 30, 224, 224)) for index in (0, 100)]
    system, user = FrameMind().prompt(SAMPLE, INFO, images)
    assert content_text(user.content) == f"[t=0.00s]<image>\n[t=3.33s]<image>\n{QUESTION}"
    for phrase in ("lasts 100.0 seconds", "at most 3 turns", "up to 2 calls", "up to 20 frames"):
        assert phrase in content_text(system.content)
    assert "{" not in content_text(system.content)


def test_budget_of_the_recipe() -> None:
    assert FrameMind.recipe_budget == RolloutLimits(prompt_tokens=12_288, response_tokens=16_384, images=128)
    assert FrameMind(context="last_evidence").context_policy() is toolkit.last_evidence


# ------------------------------------------------------------------------------------ DRFS-GRPO, with verl's functions


def advantages(rewards: list[float], groups: list[str], mask: torch.Tensor) -> torch.Tensor:
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    token_rewards = torch.zeros(mask.shape)
    token_rewards[:, -1] = torch.tensor(rewards)
    result, _ = compute_grpo_outcome_advantage(
        token_rewards, mask, np.array(groups, dtype=object), norm_adv_by_std_in_grpo=False
    )
    return result


def test_advantage_is_reward_minus_mean() -> None:
    mask = torch.tensor([[1.0, 0.0, 1.0]] * 16)
    result = advantages([1.0, *[0.0] * 7, *[2.7] * 8], ["one"] * 8 + ["two"] * 8, mask)
    assert result[0].tolist() == [0.875, 0.0, 0.875]
    assert result[1:8, 0].tolist() == [-0.125] * 7
    assert result[:8, 0].sum() == 0
    assert result[8:].abs().max() < 1e-6 and not result.isnan().any()


def test_kl() -> None:
    from verl.trainer.ppo.core_algos import kl_penalty

    logprob = torch.zeros(3)
    kl = kl_penalty(logprob, torch.tensor([0.0, 0.5, -0.5]), "low_var_kl")
    assert kl.tolist() == pytest.approx([0.0, 0.14872, 0.10653], abs=1e-5)
