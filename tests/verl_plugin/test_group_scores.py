"""Groups compared inside the worker: verl's own code around planted rollouts, up to the advantages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from ray import cloudpickle
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base

from tests.group_method import NAME, PATH, FrameThinkerInGroups
from tests.turns.framethinker import answer, choose, get
from tests.verl_plugin.group_worker import GroupQueue, Planted, run_group, run_own_group, trained_rows
from tests.verl_plugin.harness import make_row, processor, run_loop
from tests.verl_plugin.ranks import run_apart
from tests.verl_plugin.trainer_batches import WHOLE_BATCH, bare_trainer, update_filter
from verl_video_tools import methods
from verl_video_tools.core.errors import JudgeError, UsageError
from verl_video_tools.core.trajectory import GROUP_SCORE_FLAG
from verl_video_tools.rollout.tokens import placeholder_runs
from verl_video_tools.verl_plugin import agent_loop_worker
from verl_video_tools.verl_plugin import queue as queue_port
from verl_video_tools.verl_plugin.agent_loop_worker import VideoAgentLoopWorker
from verl_video_tools.verl_plugin.batching import DroppedRollouts, shared_values
from verl_video_tools.verl_plugin.settings import unpack_record
from verl_video_tools.verl_plugin.trainer import (
    VideoToolsColocateAsyncTrainer,
    VideoToolsSeparateAsyncTrainer,
    VideoToolsTrainer,
)

pytestmark = pytest.mark.usefixtures("group_method")

GROUP = [Planted("B"), Planted("A"), Planted("A", 3, calls=True), Planted("B", 2)]
# Right answers 1; one of four looked, 0.6 are wanted; the longest of 1 to 3 turns pays 0.25.
SCORES = [1.0, 0.0, 0.6 - 0.25 - 0.25, 1.0 - 0.125]


def by_rollout(queue: GroupQueue) -> dict[str, float]:
    """The score of each rollout, the same in all that says it of all its rows."""
    found: dict[str, set[float]] = {}
    for key, score in queue.scores().items():
        info = queue.info(key)
        assert score == pytest.approx(info["score"])
        assert info["score"] == pytest.approx(sum(info[name] for name in ("accuracy", "action_bonus", *EXTRA)))
        found.setdefault(key.rsplit("_", 1)[0], set()).add(round(score, 6))
    assert all(len(values) == 1 for values in found.values())
    return {name: values.pop() for name, values in sorted(found.items())}


EXTRA = ("curiosity", "length")


async def test_a_group_is_compared_before_it_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await run_group(monkeypatch, GROUP)
    assert list(by_rollout(queue).values()) == pytest.approx(SCORES)
    assert [queue.info(f"a_{number}_0")["acc"] for number in range(4)] == [1.0, 0.0, 0.0, 1.0]
    *before, last = queue.log
    assert last == ("a", "train", {"status": "finished"})
    # Written by verl, then once more: all rows, nothing but what has changed, and nothing after.
    rewritten = before[-4:]
    assert [key for key, _, _ in rewritten] == [f"a_{number}_0" for number in range(4)]
    assert all(set(put) == {"rm_scores", "extra_fields"} for _, _, put in rewritten)
    assert all("rm_scores" in put for _, _, put in before[1:5]) and before[0][2] == {"status": "running"}
    assert len(before) == 9
    assert queue.rows["a_2_0"]["extra_fields"]["min_global_steps"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("slow", range(4))
async def test_whoever_ends_last_compares(monkeypatch: pytest.MonkeyPatch, slow: int) -> None:
    group = [Planted(**{**vars(each), "seconds": 0.2 * (number == slow)}) for number, each in enumerate(GROUP)]
    queue = await run_group(monkeypatch, group)
    assert list(by_rollout(queue).values()) == pytest.approx(SCORES)
    assert queue.log[-1][2] == {"status": "finished"}


@pytest.mark.parametrize("kind", [{"flags": ("aborted",)}, {"lost": True}, {"lost": True, "flags": ("video_error",)}])
async def test_flagged_and_lost_siblings_are_left_out(monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any]) -> None:
    """A flagged rollout with a call and nine turns would halve the curiosity and stretch every length."""
    queue = await run_group(monkeypatch, [*GROUP, Planted("B", 9, calls=True, **kind)])
    scores = by_rollout(queue)
    assert list(scores.values()) == pytest.approx([*SCORES, 0.0])
    assert all(queue.info("a_4_0")[name] == 0.0 for name in ("accuracy", *EXTRA))


async def test_a_rollout_that_failed_leaves_its_siblings_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await run_group(monkeypatch, [*GROUP, Planted(error="the engine is gone", calls=True, seconds=0.1)])
    assert list(by_rollout(queue).values()) == pytest.approx(SCORES)
    assert queue.status("a") == "failure"


async def test_a_judge_without_a_verdict_flags_one_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def components(self: Any, trajectory: Any, *others: Any) -> dict[str, float]:
        if len(trajectory.turns) == 9:
            raise JudgeError("no verdict")
        return await scored(self, trajectory, *others)

    scored = FrameThinkerInGroups.components
    monkeypatch.setattr(FrameThinkerInGroups, "components", components)
    queue = await run_group(monkeypatch, [*GROUP, Planted("B", 9, calls=True)])
    assert list(by_rollout(queue).values()) == pytest.approx([*SCORES, 0.0])
    assert unpack_record(queue.rows["a_4_0"]["extra_fields"]).flags == ["judge"]


async def test_all_sequences_of_a_rollout_have_its_score(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [(3,), (2, 4), (5, 1, 3), (4, 2)]
    group = [Planted(**{**vars(each), "lengths": own}) for each, own in zip(GROUP, lengths, strict=True)]
    queue = await run_group(monkeypatch, group)
    assert len(queue.rows) == 8
    assert list(by_rollout(queue).values()) == pytest.approx(SCORES)
    numbers = [queue.rows[f"a_2_{number}"]["extra_fields"]["number"] for number in range(3)]
    assert numbers == [0, 1, 2]
    records = ["video_tools_trajectory" in queue.rows[f"a_2_{number}"]["extra_fields"] for number in range(3)]
    assert records == [False, False, True]


@pytest.mark.parametrize("num_valid", [0, 1])
async def test_without_siblings_group_components_are_0(monkeypatch: pytest.MonkeyPatch, num_valid: int) -> None:
    flagged = Planted("B", flags=("aborted",))
    queue = await run_group(monkeypatch, [Planted("B", 2, calls=True) if num_valid else flagged, flagged])
    assert by_rollout(queue) == {"a_0": float(num_valid), "a_1": 0.0}
    assert sum("rm_scores" in put for _, _, put in queue.log) == 2  # once for each


async def test_validation_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await run_group(monkeypatch, GROUP, validate=True)
    assert list(by_rollout(queue).values()) == [1.0, 0.0, 0.0, 1.0]
    assert {partition for _, partition, _ in queue.log} == {"val"}
    assert len(queue.log) == 6


async def test_another_method_takes_todays_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """One write per rollout, and rows to the letter as verl has put them."""

    def never(*_: Any) -> Any:
        raise AssertionError("nothing is read or compared")

    monkeypatch.setattr(agent_loop_worker, "unpack_record", never)
    monkeypatch.setattr(agent_loop_worker, "group_rewards", never)
    fields = {"ccv": False, "choose_bonus": 0.0}
    group = [Planted(**{**vars(each), "method": "framethinker"}) for each in GROUP]
    queue = await run_group(monkeypatch, group, method_fields=fields)
    assert len(queue.log) == 6 and queue.status("a") == "finished"
    assert set(queue.scores().values()) <= {0.0, 1.0, 0.75}


async def test_a_row_error_flags_its_rollouts_and_nobody_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_row("v.mp4")
    row["extra_info"].pop("question")
    group = [Planted(row_error=True, flags=("row_error",))] * 2
    queue = await run_group(monkeypatch, group, row=row)
    assert by_rollout(queue) == {"a_0": 0.0, "a_1": 0.0}


async def test_a_method_that_fails_to_compare_flags_the_group(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def score_group(*_: Any) -> Any:
        raise KeyError("a bug")

    monkeypatch.setattr(FrameThinkerInGroups, "score_group", score_group)
    queue = await run_group(monkeypatch, [*GROUP, Planted("B", flags=("aborted",))])
    assert queue.status("a") == "finished"
    assert set(queue.scores().values()) == {0.0}
    for number in range(4):
        info, record = queue.info(f"a_{number}_0"), unpack_record(queue.rows[f"a_{number}_0"]["extra_fields"])
        assert (info["flagged"], info["acc"], info["accuracy"], record.flags) == (1.0, 0.0, 0.0, [GROUP_SCORE_FLAG])
        assert "FrameThinkerInGroups.score_group failed: KeyError('a bug')" in str(record.error)
    assert unpack_record(queue.rows["a_4_0"]["extra_fields"]).flags == ["aborted"]
    assert "group of row 7" in caplog.text


async def test_a_group_whose_rewards_cannot_be_written_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await run_group(monkeypatch, GROUP, queue=GroupQueue(refuse_second_write=True))
    assert queue.status("a") == "failure"
    assert not queue.rows, "verl trains on what a failed group has in the queue"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"reward_score": None, "reward_extra_info": {}}, "only after the group has finished"),
        ({"reward_score": 1.0, "reward_extra_info": {"acc": 1.0}}, "lack accuracy, action_bonus"),
    ],
)
async def test_rewards_that_cannot_be_compared_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, result: dict[str, Any], said: str
) -> None:
    async def score(data: Any) -> dict[str, Any]:
        return result

    queue = await run_group(monkeypatch, GROUP, reward_worker=score)
    assert queue.status("a") == "failure"
    assert not queue.rows, "verl trains on what a failed group has in the queue"
    assert said in caplog.text


def run_as_sent(sent: str) -> None:
    """A group in the worker that lies in a file as Ray sends it, by value."""
    worker_class = cloudpickle.loads(Path(sent).read_bytes())
    assert worker_class is not VideoAgentLoopWorker.__ray_actor_class__
    methods.REGISTERED[NAME] = PATH
    with pytest.MonkeyPatch.context() as monkeypatch:
        queue = asyncio.run(run_group(monkeypatch, GROUP, worker_class=worker_class))
    assert list(by_rollout(queue).values()) == pytest.approx(SCORES), queue.log


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_worker_as_ray_sends_it(tmp_path: Path) -> None:
    """By value, to another process: what its methods know of the running group lies in a module, of which there is
    one."""
    sent = tmp_path / "worker"
    sent.write_bytes(cloudpickle.dumps(VideoAgentLoopWorker.__ray_actor_class__))
    run_apart(run_as_sent, (str(sent),), timeout_seconds=220)


async def test_a_worker_that_compares_nobody_is_refused() -> None:
    """verl's own, or one of the user's: a part of the reward would be missing without a word."""
    with pytest.raises(UsageError, match=r"derive a .* of your own from VideoAgentLoopManager"):
        await run_loop([answer("B")], method=NAME)
    assert (await run_loop([answer("B")])).trajectory.answer == "B"


async def test_several_groups_at_once_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = GroupQueue()
    await asyncio.gather(*(run_group(monkeypatch, GROUP, uid=uid, queue=queue) for uid in "abc"))
    assert list(by_rollout(queue).values()) == pytest.approx(SCORES * 3)


@pytest.mark.parametrize("context", ["append", "last_evidence"])
async def test_rollouts_of_our_own_loop(monkeypatch: pytest.MonkeyPatch, context: str) -> None:
    """Real videos, prompts, tokens and records; the policy says what is written here."""
    scripts = [
        [answer("B")],
        [answer("A")],
        [choose(20, 60), choose(100, 140), answer("A")],
        [get("0:03"), answer("B")],
    ]
    fields = {"context": context, "time_bonus": 0.0, "wanted_rate": 0.75}
    queue = await run_own_group(monkeypatch, scripts, fields)
    num_sequences = [1, 1, 3, 1] if context == "last_evidence" else [1] * 4
    assert len(queue.rows) == sum(num_sequences)
    # Two of four looked, 0.75 are wanted.
    assert list(by_rollout(queue).values()) == pytest.approx([1.0, 0.0, 0.25 - 0.25, 1.25 - 0.125])
    for row in queue.rows.values():
        grids_N3 = row["multi_modal_inputs"]["image_grid_thw"]
        assert (
            placeholder_runs(row["input_ids"].tolist(), processor().image_token_id) == (grids_N3.prod(1) // 4).tolist()
        )
    assert queue.log[-1] == ("a", "train", {"status": "finished"})


# ------------------------------------------------------------------------------------------------ whoever reads rewards

TRAINERS = [VideoToolsTrainer, VideoToolsColocateAsyncTrainer, VideoToolsSeparateAsyncTrainer]


def advantages(monkeypatch: pytest.MonkeyPatch, queue: GroupQueue, kind: type, by_std: bool) -> dict[str, float]:
    """Of each rollout, by the trainer's own step."""
    monkeypatch.setattr(queue_port, "tq", queue)
    monkeypatch.setattr(trainer_base, "tq", queue)
    trainer = bare_trainer(kind)
    algorithm = {"use_kl_in_reward": False, "adv_estimator": "grpo", "gamma": 1.0, "lam": 1.0}
    algorithm["norm_adv_by_std_in_grpo"] = by_std
    sections = {"rollout": {"n": 4}, "actor": {"ppo_mini_batch_size": WHOLE_BATCH}}
    trainer.config = OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": sections})
    trainer.global_steps = 1
    trainer._updates = update_filter(trainer)
    rows = trained_rows(queue)
    trainer._compute_advantage(KVBatchMeta(keys=list(rows), tags=[{} for _ in rows], partition_id="train"), {})
    found: dict[str, set[float]] = {}
    for key, row in rows.items():
        values = {round(float(value), 4) for value in row["advantages"][row["response_mask"].bool()]} or {0.0}
        found.setdefault(key.rsplit("_", 1)[0], set()).update(values)
    assert all(len(values) == 1 for values in found.values())
    return {name: values.pop() for name, values in sorted(found.items())}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "by_std", "flagged", "several"),
    [  # every pair of values
        (TRAINERS[0], True, False, True),
        (TRAINERS[0], False, True, False),
        (TRAINERS[1], True, True, False),
        (TRAINERS[1], False, False, True),
        (TRAINERS[2], True, False, False),
        (TRAINERS[2], False, True, True),
    ],
)
async def test_advantages_by_hand(
    monkeypatch: pytest.MonkeyPatch, kind: type, by_std: bool, flagged: bool, several: bool
) -> None:
    group = [Planted(**{**vars(each), "lengths": (2, 3)}) for each in GROUP] if several else [*GROUP]
    if flagged:
        group.insert(1, Planted("B", 9, calls=True, flags=("deadline",), lengths=(2, 2) if several else (3,)))
    queue = await run_group(monkeypatch, group)
    found = list(advantages(monkeypatch, queue, kind, by_std).values())
    # By hand: 1, 0, 0.1, 0.875; mean 0.49375; deviation with 3 in the denominator 0.516549.
    centred = [0.50625, -0.49375, -0.39375, 0.38125]
    expected = [value / 0.516549 for value in centred] if by_std else centred
    assert np.std(SCORES, ddof=1) == pytest.approx(0.516549, abs=1e-5)
    if flagged:
        expected.insert(1, 0.0)
    assert found == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize(
    ("metric", "shared"), [(None, None), ("score", None), ("curiosity", None), ("acc", 1.0), ("length", 0.0)]
)
async def test_dynamic_sampling_filters_by_the_compared_rewards(
    monkeypatch: pytest.MonkeyPatch, metric: str | None, shared: float | None
) -> None:
    """All answers are right; one rollout looked. By itself each rollout would have earned the same."""
    queue = await run_group(monkeypatch, [Planted("B"), Planted("B", calls=True), Planted("B", flags=("aborted",))])
    monkeypatch.setattr(queue_port, "tq", queue)
    values = shared_values(list(queue.rows), "train", metric, lambda key, info: None, DroppedRollouts())
    assert values == {"a": shared}
