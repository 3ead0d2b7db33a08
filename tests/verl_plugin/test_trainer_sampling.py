"""Dynamic sampling: verl's own replay buffer on an in-memory queue, as our trainer builds it."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from verl.trainer.ppo.v1 import replay_buffer, trainer_base
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.verl_plugin import queue as queue_port
from verl_video_tools.verl_plugin.alarms import Alarms, JudgeWatch
from verl_video_tools.verl_plugin.batching import DroppedRollouts
from verl_video_tools.verl_plugin.settings import TrainerOptions, judge_config
from verl_video_tools.verl_plugin.trainer import VideoToolsColocateAsyncTrainer, VideoToolsTrainer

Group = list[float | None]
"""Scores of a group's rollouts, None where the judge gave no verdict."""


class Queue:
    """The part of TransferQueue that replay buffers use, in memory."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, Any]] = {}
        self.scores: dict[str, float | None] = {}

    def add(self, uid: str, group: Group, num_sequences: int = 1) -> None:
        self.tags[uid] = {"is_prompt": True, "status": "finished", "global_steps": 1}
        for session, score in enumerate(group):
            for index in range(num_sequences):
                self.tags[f"{uid}_{session}_{index}"] = {}
                self.scores[f"{uid}_{session}_{index}"] = score

    def kv_list(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {"train": dict(self.tags)}

    def kv_clear(self, partition_id: str, keys: list[str]) -> None:
        for key in keys:
            self.tags.pop(key, None)

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        columns = {
            "rm_scores": [torch.tensor([0.0, self.scores[key] or 0.0]) for key in keys],
            "extra_fields": [SimpleNamespace(data={"reward_extra_info": self.info(key)}) for key in keys],
        }
        return {name: columns[name] for name in select_fields}

    def info(self, key: str) -> dict[str, float]:
        score = self.scores[key]
        failed = float(score is None)
        return {"score": score or 0.0, "flagged": failed, "judge_failed": failed, "judge_calls": 1.0}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    monkeypatch.setattr(replay_buffer, "tq", queue)
    monkeypatch.setattr(queue_port, "tq", queue)
    return queue


def trainer_with_buffer(
    refill: Callable[[int], int],
    kind: type[VideoToolsTrainer] | type[VideoToolsColocateAsyncTrainer] = VideoToolsTrainer,
    metric: str = "reward",
    enable: bool = True,
    batch_size: int = 4,
    on_failure: str = "flag",
) -> Any:
    """A trainer that has made nothing but its replay buffer, by verl's own code."""
    trainer = object.__new__(kind)
    judge = {"base_url": "http://judge/v1", "on_failure": on_failure}
    sampler = {"max_off_policy_threshold": None, "max_off_policy_strategy": "drop", "sampler_kwargs": {}}
    trainer.config = OmegaConf.create(
        {
            "trainer": {"v1": {"sampler": sampler, "sync": {}, "colocate_async": {}}},
            "algorithm": {"filter_groups": {"enable": enable, "metric": metric, "max_inflight_gen_batches": 4}},
            "reward": {"reward_model": {"enable": False}},
            "data": {"train_batch_size": batch_size},
            "actor_rollout_ref": {"rollout": {"custom": {"video_tools": {"judge": judge}}}},
        }
    )
    trainer._add_prompts_to_generate = refill
    trainer._judge_watch = JudgeWatch(judge_config(trainer.config))
    trainer._logging, trainer._options = SimpleNamespace(dropped=DroppedRollouts()), TrainerOptions()
    trainer.replay_buffer = trainer._build_replay_buffer()
    trainer.replay_buffer.poll_interval = 0.0
    return trainer


def sampled(trainer: Any, queue: Queue, batch_size: int) -> tuple[dict[str, Group], dict[str, Any]]:
    """The groups of a batch, and what verl tells of those that it dropped."""
    batch, metrics = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=batch_size)
    groups: dict[str, Group] = {}
    for key in batch.keys:
        groups.setdefault(key.split("_")[0], []).append(queue.scores[key])
    return groups, metrics


def can_teach(group: Group) -> bool:
    return len({score for score in group if score is not None}) > 1


@pytest.mark.parametrize("metric", ["reward", "score"])
@pytest.mark.parametrize("kind", [VideoToolsTrainer, VideoToolsColocateAsyncTrainer])
def test_groups_are_compared_by_their_valid_siblings(kind: Any, metric: str, queue: Queue) -> None:
    dropped: dict[str, Group] = {
        "flagged": [1.5] * 15 + [None],
        "wrong": [0.0] * 15 + [None],
        "lone": [1.5] + [None] * 15,
        "none": [None] * 16,
        "equal": [1.05] * 16,
    }
    kept: dict[str, Group] = {"unequal": [1.5, 0.0] * 7 + [None, None], "two": [1.5, 0.0] + [None] * 14}
    for uid, group in {**dropped, **kept}.items():
        queue.add(uid, group, num_sequences=2)
    trainer = trainer_with_buffer(lambda num_prompts: num_prompts, kind, metric)
    groups, metrics = sampled(trainer, queue, batch_size=2)
    assert groups.keys() == kept.keys()
    assert metrics["training/filter_groups/evicted_samples"] == len(dropped)
    assert trainer._logging.dropped.take() == {
        "rollout/dropped": 5 * 16.0,
        "rollout/dropped_flagged": 1 + 1 + 15 + 16.0,
    }
    assert trainer._logging.dropped.take() == {"rollout/dropped": 0.0, "rollout/dropped_flagged": 0.0}


def test_the_alarm_hears_of_flagged_rollouts_that_are_dropped(queue: Queue) -> None:
    """Those of a video that no one can read are: their row would go without a word."""
    for number in range(3):
        queue.add(f"unread{number}", [None] * 8)
    for number in range(4):
        queue.add(f"read{number}", [1.5, 0.0] * 4)
    trainer = trainer_with_buffer(lambda num_prompts: num_prompts)
    groups, _ = sampled(trainer, queue, batch_size=4)
    assert len(groups) == 4
    batch = {"rollout/count": 32.0, "rollout/flagged": 0.0}
    alarms = Alarms({"patience_steps": 1}, max_probs_diff=0.05)
    assert alarms.check(1, batch) == []
    assert alarms.check(2, batch | trainer._logging.dropped.take()) == ["flagged_rollouts"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [VideoToolsTrainer, VideoToolsColocateAsyncTrainer])
def test_two_percent_of_judge_failures_let_no_equal_group_into_a_batch(kind: Any, queue: Queue) -> None:
    """Every second group has equal valid scores; a group of 16 holds a failure in 28 % of cases."""
    random, numbers = Random(0), count()

    def add(num_prompts: int) -> int:
        for number in range(num_prompts):
            scores = [1.5] * 16 if number % 2 else [random.choice([0.0, 1.5]) for _ in range(16)]
            queue.add(f"g{next(numbers)}", [None if random.random() < 0.02 else score for score in scores])
        return num_prompts

    trainer = trainer_with_buffer(add, kind, batch_size=64)
    for _ in range(5):
        add(64)
        before = next(numbers)
        groups, metrics = sampled(trainer, queue, batch_size=64)
        assert len(groups) == 64  # the batch was refilled
        assert all(can_teach(group) for group in groups.values())
        assert metrics["training/filter_groups/evicted_samples"] >= 30
        assert next(numbers) > before + 30


def test_verls_own_filter_would_keep_them(queue: Queue) -> None:
    """Why there is a buffer of ours; should a later verl compare valid siblings, it can go."""
    queue.add("flagged", [1.5] * 15 + [None])
    trainer = trainer_with_buffer(lambda num_prompts: num_prompts)
    names = inspect.signature(ReplayBuffer).parameters
    stock = ReplayBuffer(**{name: getattr(trainer.replay_buffer, name) for name in names})
    stock._sync_metadata_from_transfer_queue()
    assert stock._dapo_filtered_keys("train")[0] == set()


def test_only_buffers_that_filter_are_replaced(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(trainer_with_buffer(lambda n: n, enable=False).replay_buffer) is ReplayBuffer
    assert type(trainer_with_buffer(lambda n: n).replay_buffer) is not ReplayBuffer
    assert isinstance(trainer_with_buffer(lambda n: n, VideoToolsColocateAsyncTrainer).replay_buffer, ReplayBufferAsync)

    class Chosen(ReplayBuffer):
        """The user's."""

    chosen = object.__new__(Chosen)
    monkeypatch.setattr(trainer_base.PPOTrainer, "_build_replay_buffer", lambda self: chosen)
    assert object.__new__(VideoToolsTrainer)._build_replay_buffer() is chosen


@pytest.fixture
def refilled_by_the_trainer(monkeypatch: pytest.MonkeyPatch, queue: Queue) -> Iterator[Callable[..., Any]]:
    numbers = count()

    def make(group: Group, on_failure: str = "flag") -> Any:
        def add(self: Any, num_prompts: int) -> int:
            for _ in range(num_prompts):
                queue.add(f"g{next(numbers)}", group)
            return num_prompts

        monkeypatch.setattr(trainer_base.PPOTrainer, "_add_prompts_to_generate", add)
        trainer = trainer_with_buffer(lambda num_prompts: 0, on_failure=on_failure)
        del trainer._add_prompts_to_generate
        trainer.replay_buffer.refill_fn = trainer._add_prompts_to_generate
        trainer.global_steps, trainer._num_refilled = 1, 0
        trainer._phase = "generating rollouts"
        trainer._judge_watch.begin_step()
        add(trainer, 4)
        return trainer

    yield make


def test_a_step_that_dynamic_sampling_cannot_fill_for_want_of_verdicts_ends(
    refilled_by_the_trainer: Callable[[Group], Any], queue: Queue
) -> None:
    trainer = refilled_by_the_trainer([None] * 16)
    with pytest.raises(JudgeError, match=r"no verdict at all during 0 steps and \d batches"):
        sampled(trainer, queue, batch_size=4)


def test_a_judge_that_answers_does_not_end_such_a_step(
    refilled_by_the_trainer: Callable[[Group], Any], queue: Queue
) -> None:
    trainer = refilled_by_the_trainer([1.5] * 15 + [None])
    with pytest.raises(Exception, match=r"20 batches of 4 questions did not replace"):
        sampled(trainer, queue, batch_size=4)


def test_a_run_that_shall_stop_without_verdicts_stops_for_those_of_dropped_groups(
    refilled_by_the_trainer: Callable[..., Any], queue: Queue
) -> None:
    """Valid siblings are equal, so the group is dropped: the failure has decided what is trained on."""
    trainer = refilled_by_the_trainer([1.5, 0.0])
    queue.add("dropped", [0.0, 0.0, None], num_sequences=2)
    sampled(trainer, queue, batch_size=4)
    trainer._judge_watch.check_failures(1)  # by default such a rollout is flagged
    trainer = refilled_by_the_trainer([1.5, 0.0], on_failure="stop")
    queue.add("dropped", [0.0, 0.0, None], num_sequences=2)
    sampled(trainer, queue, batch_size=4)
    with pytest.raises(JudgeError, match=r"found 1 times"):
        trainer._judge_watch.check_failures(1)
    trainer._judge_watch.begin_step()
    trainer._judge_watch.check_failures(2)
