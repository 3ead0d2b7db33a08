"""Rollouts that share their first turns: through the real loop, and the trainer's advantages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from contextvars import Context
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.turns.framethinker import answer, choose
from tests.verl_plugin.group_worker import run_group
from tests.verl_plugin.harness import Rollout, ScriptedServer, make_row, processor, run_loop, tokenizer, video
from tests.verl_plugin.trainer_batches import advantages, run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.group_router import RequestId
from verl_video_tools.verl_plugin.group_scores import begin_group
from verl_video_tools.verl_plugin.row_check import check_rows
from verl_video_tools.verl_plugin.settings import check_branching, unpack_record

TRAINING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
VALIDATION = {"temperature": 0, "top_p": 1.0, "top_k": -1}
BRANCHING = {"branches": 2, "turn": 2}


async def rollout(session_id: int, *turns: str, video_path: str | None = None, **options: Any) -> Rollout:
    """One of a group of four, which the running task must have begun."""
    custom = {"video_tools": {"branching": BRANCHING, **options.pop("sections", {})}}
    return await run_loop(
        turns,
        row=make_row(video_path or video()) | {"session_id": session_id},
        rollout_options={"n": 4, **TRAINING, "val_kwargs": {"n": 4, **VALIDATION}, "custom": custom},
        sampling_params={**TRAINING, **options.pop("sampling", {})},
        **options,
    )


def turns_of(result: Rollout) -> list[str]:
    return [turn.text for turn in result.trajectory.turns]


async def test_siblings_share_the_first_turn_and_go_on_by_themselves() -> None:
    begin_group()
    first = await rollout(0, choose(20, 60), answer("B"))
    second = await rollout(1, answer("C"))
    other = await rollout(2, choose(70, 90), answer("B"))
    assert turns_of(first)[0] == turns_of(second)[0] != turns_of(other)[0]
    assert (first.trajectory.answer, second.trajectory.answer) == ("B", "C")
    assert [len(each.server.requests) for each in (first, second, other)] == [2, 1, 2]
    fields = [each.output.extra_fields for each in (first, second, other)]
    assert fields[0]["num_prefix_tokens"] == fields[1]["num_prefix_tokens"]
    shared = fields[0]["num_prefix_tokens"]
    assert first.output.response_ids[:shared] == second.output.response_ids[:shared]
    assert first.output.response_logprobs[:shared] == second.output.response_logprobs[:shared]
    # All that is left is the turn that the rollout has sampled for itself.
    assert first.output.response_ids[shared:] == first.server.returned[1]
    assert second.output.response_ids[shared:] == second.server.returned[0]
    sampled = [sum(map(len, each.server.returned)) for each in (first, second, other)]
    assert [each["num_sampled_tokens"] for each in fields] == sampled
    assert sampled[1] < sum(second.output.response_mask) == sampled[0] == sampled[2]
    assert second.output.response_mask == first.output.response_mask
    end_of_turn = tokenizer().convert_tokens_to_ids("<|im_end|>")
    assert second.output.response_mask[:shared].count(1) == first.output.response_ids.index(end_of_turn) + 1


async def test_a_rollout_that_ends_in_a_shared_turn_is_shared_throughout() -> None:
    begin_group()
    first, second = await rollout(0, answer("B")), await rollout(1)
    assert second.output.response_ids == first.output.response_ids and second.trajectory.answer == "B"
    lengths = [each.output.extra_fields["num_prefix_tokens"] for each in (first, second)]
    assert lengths == [len(first.output.response_ids)] * 2
    assert second.output.extra_fields["num_sampled_tokens"] == 0


@pytest.mark.parametrize(("told", "sampling"), [(None, VALIDATION), (True, VALIDATION), (True, TRAINING)])
async def test_validation_shares_nothing(told: bool | None, sampling: Mapping[str, float]) -> None:
    """Nor where it samples as training does, as our worker tells the loop."""
    begin_group(validates=told)
    for session_id in (0, 1):
        result = await rollout(session_id, choose(20, 60), answer("B"), sampling=sampling)
        assert len(result.server.requests) == 2 and result.output.extra_fields["num_prefix_tokens"] is None


async def test_training_shares_turns_where_validation_samples_as_it_does() -> None:
    begin_group(validates=False)
    for session_id, turns in enumerate([[choose(20, 60), answer("B")], [answer("B")]]):
        result = await rollout(session_id, *turns, sampling=VALIDATION)
        assert len(result.trajectory.turns) == 2, "the second one's first turn is its sibling's"
        assert len(result.server.requests) == len(turns)


async def test_rollouts_of_a_prefix_have_the_same_config() -> None:
    """FrameMind's ladder: one rung for each prefix, from the first to the last."""
    begin_group()
    ladder = {"framemind": {"low": [8, 56], "high": [4, 112]}}
    results = [
        await rollout(number, *([answer("B")] if number in (0, 2) else []), method="framemind", sections=ladder)
        for number in range(4)
    ]
    assert [len(each.trajectory.initial_frames) for each in results] == [8, 8, 4, 4]
    assert not any(each.trajectory.flags for each in results)


async def test_a_sibling_with_another_first_look_is_flagged() -> None:
    begin_group()
    await rollout(0, choose(20, 60), answer("B"))
    result = await rollout(1, answer("C"), video_path=video(num_frames=100))
    assert result.trajectory.flags == ["invariant"] and "branching.turn" in str(result.trajectory.error)
    assert not any(result.output.response_mask)


async def test_a_worker_that_knows_no_siblings_is_refused() -> None:
    async def alone() -> None:
        await rollout(0, answer("B"))

    with pytest.raises(UsageError, match="VideoAgentLoopManager"):
        await asyncio.get_running_loop().create_task(alone(), context=Context())


class CountedClient:
    """Stands for verl's client of the inference server. Looks first, then gives each rollout an answer of its own."""

    def __init__(self) -> None:
        self.first_turns: list[int] = []
        """Numbers of the rollouts that have asked for one."""

    async def generate(self, request_id: str, image_data: list[Any], **request: Any) -> Any:
        rollout = RequestId.parse(request_id)
        assert rollout is not None
        await asyncio.sleep(0.05)
        is_first = len(image_data) == NUM_FIRST_FRAMES
        if is_first:
            self.first_turns.append(rollout.session_id)
        turn = choose(20, 60) if is_first else answer("BABB"[rollout.session_id])
        return await ScriptedServer([turn]).generate(request_id=request_id, image_data=image_data, **request)


NUM_FIRST_FRAMES = 8


@pytest.mark.usefixtures("group_method")
async def test_rollouts_of_a_worker_share_turns_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, in verl's tasks of a group, from the video to the rows in the queue."""
    client, custom = CountedClient(), {"video_tools": {"branching": BRANCHING}}
    lengths = {"prompt_length": 4096, "response_length": 4096, "calculate_log_probs": True}
    queue = await run_group(
        monkeypatch,
        [[""]] * 4,
        row=make_row(video()),
        rollout_options={"n": 4, **lengths, "custom": custom},
        processor=processor(),
        tokenizer=tokenizer(),
        hf_model_type="qwen2_5_vl",
        llm_client=client,
    )
    assert len(client.first_turns) == 2 and {number // 2 for number in client.first_turns} == {0, 1}
    fields = [queue.rows[f"a_{number}_0"]["extra_fields"] for number in range(4)]
    assert [unpack_record(each).answer for each in fields] == ["B", "A", "B", "B"]
    assert len({each["num_sampled_tokens"] for each in fields}) == 2, "with a first turn, and without"
    assert len({each["num_prefix_tokens"] for each in fields}) == 1
    assert queue.status("a") == "finished"


# ---------------------------------------------------------------------------------------------------------- the trainer

GROUP = [("a_0_0", 1.0, False), ("a_1_0", 0.0, False), ("a_2_0", 0.0, False), ("a_3_0", 0.0, False)]
PREFIXES = {"a_0_0": 2, "a_1_0": 2, "a_2_0": 2, "a_3_0": 3}
"""Of three response tokens, the second of which is an observation; the last rollout has ended in a shared turn."""


def test_what_comes_after_the_prefix_has_an_advantage_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run(monkeypatch, GROUP, branching=BRANCHING, prefix_tokens=PREFIXES)
    std = 0.5
    assert advantages(rows) == {
        "a_0_0": [0.375 / std, 0.0, 0.75 / std],
        "a_1_0": [0.375 / std, 0.0, -0.75 / std],
        "a_2_0": [-0.375 / std, 0.0, 0.0],
        "a_3_0": [-0.375 / std, 0.0, -0.375 / std],
    }
    assert all(row["returns"].tolist() == row["advantages"].tolist() for row in rows.values())


def test_a_flagged_branch_moves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    group = [*GROUP[:3], ("a_3_0", 5.0, True)]
    values = advantages(run(monkeypatch, group, branching=BRANCHING, prefix_tokens=PREFIXES))
    assert values["a_3_0"] == [0.0, 0.0, 0.0]
    assert values["a_2_0"][0] == values["a_2_0"][2] < 0  # compared with the other prefix throughout


def test_equal_rewards_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    group = [(f"a_{i}_0", 1.05, False) for i in range(4)]
    rows = run(monkeypatch, group, branching=BRANCHING, prefix_tokens=PREFIXES)
    assert {tuple(row["advantages"].tolist()) for row in rows.values()} == {(0.0, 0.0, 0.0)}


def test_rollouts_of_a_run_that_shared_nothing_are_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asynchronous training may go on with some that were finished before it was started with another option."""
    values = advantages(run(monkeypatch, GROUP, branching=BRANCHING))
    assert values["a_0_0"] == [1.5, 0.0, 1.5] and values["a_2_0"] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("validate", [True, False])
def test_turns_that_are_sequences_of_their_own_cannot_be_shared(validate: bool) -> None:
    custom = {"video_tools": {"branching": BRANCHING, "compose": {"file": "demo", "context": "last_evidence"}}}
    rollout_config = OmegaConf.create({"n": 4, "val_kwargs": {"n": 1}, "agent": {}, "custom": custom})
    rows = [make_row(video()) | {"agent_name": "compose"}]
    with nullcontext() if validate else pytest.raises(UsageError, match="'last_evidence'; set context=append"):
        check_rows(rows, rollout_config, None, validate=validate)


@pytest.mark.parametrize(
    ("section", "estimator", "message"),
    [
        ({"branches": 3}, "grpo", "branches=3 makes no two or more equal parts of rollout.n=8"),
        ({"branches": 2}, "rloo", "adv_estimator=rloo"),
        ({"branch": 2}, "grpo", "did you mean 'branches'"),
    ],
)
def test_wrong_options_are_told_before_any_worker_starts(
    section: Mapping[str, int], estimator: str, message: str
) -> None:
    rollout = {"n": 8, "custom": {"video_tools": {"branching": section}}}
    config = OmegaConf.create({"algorithm": {"adv_estimator": estimator}, "actor_rollout_ref": {"rollout": rollout}})
    with pytest.raises(UsageError, match=message):
        check_branching(config)
