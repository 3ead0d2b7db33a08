"""FrameMind through the token loop: a group's rungs, validation, budgets and error texts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.verl_plugin.harness import Rollout, make_row, run_loop, video
from verl_video_tools.core.types import StopReason
from verl_video_tools.methods.framemind import FrameMind, resolution_ladder
from verl_video_tools.rollout import observation
from verl_video_tools.verl_plugin.agent_loop_worker import begin_group
from verl_video_tools.verl_plugin.settings import group_methods, is_validation
from verl_video_tools.video import cache_stats

both_vocabularies = pytest.mark.usefixtures("vocabulary")
"""For tests about tokens. The choice of a rung and the cache know none."""

LOW, HIGH = (8, 28), (4, 84)
FIELDS = {"low": list(LOW), "high": list(HIGH), "tool_side_pixels": 28}
SAMPLING = {"temperature": 0.7, "top_p": 0.9, "top_k": -1}
VALIDATION = {"temperature": 0.01, "top_p": 0.95, "top_k": -1}
OPTIONS = {"n": 4, **SAMPLING, "val_kwargs": {"n": 1, **VALIDATION}}
CLIP = "<think>a</think><tool_call>VideoClip(5, 9)</tool_call><turn_sum>b</turn_sum>"
BAD = "<think>a</think><tool_call>VideoClip(9, 5)</tool_call><turn_sum>b</turn_sum>"
ANSWER = "<think>a</think><answer>B</answer>"


async def rollout(turns: list[str], session_id: int = 0, **arguments: Any) -> Rollout:
    """On 20 seconds at 10 frames per second, in a group of 4."""
    fields = {**FIELDS, **arguments.pop("method_fields", {})}
    row = {**make_row(arguments.pop("video_path", video())), "session_id": session_id}
    return await run_loop(
        turns, method="framemind", method_fields=fields, row=row, rollout_options=OPTIONS, **arguments
    )


def plan_initial_frames(result: Rollout) -> tuple[int, int]:
    frames = result.trajectory.initial_frames
    return len(frames), frames[0].width


async def test_every_rung_once_per_group_and_again_after_a_restart() -> None:
    for _ in range(2):
        group = await asyncio.gather(*(rollout([ANSWER], number, sampling_params=SAMPLING) for number in range(4)))
        assert [plan_initial_frames(result) for result in group] == [(8, 28), (7, 56), (5, 56), (4, 84)]
        assert [result.trajectory.flags for result in group] == [[]] * 4
    assert [number for number, _ in resolution_ladder(4, LOW, HIGH)] == [8, 7, 5, 4]


async def test_validation_takes_the_validation_rung() -> None:
    fields = {"initial_frames": 4}
    result = await rollout([ANSWER], sampling_params=VALIDATION, method_fields=fields)
    assert plan_initial_frames(result) == (4, 84)
    assert plan_initial_frames(await rollout([ANSWER], sampling_params=SAMPLING, method_fields=fields)) == (8, 28)


async def test_the_workers_word_on_validation_counts_more_than_the_sampling() -> None:
    fields = {"initial_frames": 4}
    begin_group(validates=True)
    assert plan_initial_frames(await rollout([ANSWER], sampling_params=SAMPLING, method_fields=fields)) == (4, 84)
    begin_group(validates=False)
    assert plan_initial_frames(await rollout([ANSWER], sampling_params=VALIDATION, method_fields=fields)) == (8, 28)


@both_vocabularies
async def test_a_rollout_names_its_rung() -> None:
    """So that fine-tuning on it shows the same frames again (`verl_plugin.sft_dataset`)."""
    for number in range(4):
        result = await rollout([ANSWER], number, sampling_params=SAMPLING)
        assert result.trajectory.settings == {"num_rungs": 4, "rung": number + 1}
        again = FrameMind(low=LOW, high=HIGH, tool_side_pixels=28, **result.trajectory.settings)
        assert again.initial_rung()[0] == plan_initial_frames(result)[0]
    assert (await rollout([ANSWER], 3, sampling_params=VALIDATION)).trajectory.settings == {}


def test_how_validation_is_told() -> None:
    config = OmegaConf.create(OPTIONS)
    assert is_validation({**VALIDATION, "logprobs": True}, config)
    assert not is_validation({**SAMPLING, "logprobs": True}, config)
    same = OmegaConf.create({**OPTIONS, "val_kwargs": {"n": 1, **SAMPLING}})
    assert not is_validation(SAMPLING, same), "nothing tells them apart: training"
    assert not is_validation(SAMPLING, OmegaConf.create({}))
    method = FrameMind()
    assert group_methods(method, config, True) == [method]
    assert [member.rung for member in group_methods(method, config, False)] == [1, 2, 3, 4]


async def test_a_group_decodes_once() -> None:
    """What the first rollout decodes, it decodes for all; the later ones find their frames in the cache."""
    path = video(num_frames=160, fps=8)
    fields = {"nested_times": True}
    missed = []
    for number in range(4):
        before = cache_stats().misses
        await rollout([ANSWER], number, sampling_params=SAMPLING, method_fields=fields, video_path=path)
        missed.append(cache_stats().misses - before)
    assert missed == [8, 0, 0, 0]


@both_vocabularies
async def test_an_error_is_read_and_not_trained_on() -> None:
    result = await rollout([BAD, CLIP, ANSWER])
    assert result.trajectory.stop_reason is StopReason.ANSWER
    assert len(result.trajectory.turns) == 3 and len(result.images) == 8 + 8
    assert "ERROR: reversed_segment: " in result.text_of(keep=0)
    assert "The video lasts 20.00 seconds.\nTurn 2 of 3." in result.text_of(keep=0)
    assert result.text_of(keep=1) == "".join(f"{turn}<|im_end|>" for turn in (BAD, CLIP, ANSWER))


@both_vocabularies
async def test_a_turn_without_a_call() -> None:
    turn = "<think>a</think><turn_sum>b</turn_sum>"
    result = await rollout([turn, ANSWER])
    assert result.text_of(keep=0) == (
        "\n<|im_start|>user\nNo frames were asked for.\nTurn 2 of 3.<|im_end|>\n<|im_start|>assistant\n"
    )


@both_vocabularies
@pytest.mark.parametrize(("limits", "code"), [({"max_images": 15}, "image"), ({"response_length": 120}, "response")])
async def test_what_does_not_fit_is_refused_and_told(limits: dict[str, int], code: str) -> None:
    result = await rollout([CLIP, ANSWER], **limits)
    (record,) = result.trajectory.calls()
    assert str(record.error).startswith(f"{code}_budget: ") and record.frames == []
    assert len(result.images) == 8
    assert f"ERROR: {code}_budget: does not fit." in result.text_of(keep=0)
    assert result.trajectory.stop_reason is StopReason.ANSWER


@both_vocabularies
async def test_104_images() -> None:
    fields = {"low": [64, 28], "high": [64, 28], "min_call_frames": 20}
    clips = [CLIP, CLIP.replace("5, 9", "10, 15"), ANSWER]
    result = await rollout(clips, method_fields=fields, max_images=128, video_path=video())
    assert len(result.images) == 104
    assert (result.trajectory.stop_reason, result.trajectory.flags) == (StopReason.ANSWER, [])


@both_vocabularies
async def test_a_rung_that_the_prompt_has_no_room_for_does_not_count_against_its_siblings() -> None:
    """The policy chooses neither its rung nor the limit."""
    lengths = [len((await rollout([ANSWER], number)).output.prompt_ids) for number in range(4)]
    cheapest, dearest = lengths.index(min(lengths)), lengths.index(max(lengths))
    fits = await rollout([ANSWER], cheapest, prompt_length=min(lengths))
    assert (fits.trajectory.stop_reason, fits.trajectory.flags) == (StopReason.ANSWER, [])
    refused = await rollout([], dearest, prompt_length=min(lengths))
    assert refused.trajectory.stop_reason is StopReason.PROMPT_BUDGET
    assert refused.trajectory.flags == ["prompt_budget"]


@both_vocabularies
async def test_a_prompt_is_refused_before_decoding_by_the_labels_that_it_would_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Frames are asked for by number and labelled by time, whose digits are tokens."""
    length = len((await rollout([ANSWER])).output.prompt_ids)
    assert (await rollout([ANSWER], prompt_length=length)).trajectory.stop_reason is StopReason.ANSWER

    def decode(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(observation, "decode_frames", decode)
    refused = await rollout([], prompt_length=length - 1)
    assert refused.trajectory.stop_reason is StopReason.PROMPT_BUDGET
