"""Steps and validations in which the judge gave no verdict, or none at all."""

# Imports after a skip: what they name is not there on every machine.

from pathlib import Path

import pytest
from omegaconf import OmegaConf

pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base

from tests.verl_plugin.trainer_batches import advantages, run, run_logging
from verl_video_tools.core.errors import JudgeError, VideoToolsError
from verl_video_tools.verl_plugin.alarms import JudgeWatch
from verl_video_tools.verl_plugin.settings import TrainerOptions, judge_config
from verl_video_tools.verl_plugin.trainer import VideoToolsTrainer


def test_a_rollout_without_a_verdict_neither_trains_nor_moves_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    valid = [("a_0_0", 1.0, False), ("a_1_0", 0.0, False), ("a_2_0", 0.0, False)]
    without = advantages(run(monkeypatch, valid))
    rows = run(monkeypatch, [*valid, ("a_3_0", 0.0, False)], unjudged=("a_3_0",))
    assert {key: advantages(rows)[key] for key in without} == without
    assert advantages(rows)["a_3_0"] == [0.0, 0.0, 0.0]
    assert rows["a_3_0"]["response_mask"].tolist() == [0, 0, 0]


def test_a_run_that_shall_stop_without_verdicts_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = [("a_0_0", 1.0, False), ("a_1_0", 0.0, False)]
    run(monkeypatch, rollouts, on_failure="stop")
    with pytest.raises(JudgeError, match=r"step 1: the judge gave no verdict \(found 1 times\)"):
        run(monkeypatch, rollouts, unjudged=("a_1_0",), on_failure="stop")


def test_a_step_without_any_verdict_updates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl would add KL and entropy to a loss without advantages, and its optimizer momentum and weight decay."""
    updated: list[KVBatchMeta] = []
    monkeypatch.setattr(trainer_base.PPOTrainer, "_update_actor", lambda self, batch, metrics: updated.append(batch))
    trainer = object.__new__(VideoToolsTrainer)
    rollouts = [("a_0_0", 0.0, False), ("a_1_0", 0.0, False)]
    run(monkeypatch, rollouts, unjudged=("a_0_0",), trainer=trainer)
    judged, not_judged = (KVBatchMeta(keys=[], tags=[], partition_id=name) for name in ("judged", "not judged"))
    trainer._update_actor(judged, {})
    run(monkeypatch, rollouts, unjudged=("a_0_0", "a_1_0"), trainer=trainer)
    assert trainer._update_actor(not_judged, {}) is not_judged
    assert [batch.partition_id for batch in updated] == ["judged"]


def test_a_run_ends_after_steps_without_any_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that ask no judge neither count nor begin the count anew; a single verdict does."""
    rollouts = [("a_0_0", 0.0, False), ("a_1_0", 1.0, False)]
    monkeypatch.setattr(trainer_base.PPOTrainer, "_update_actor", lambda self, batch, metrics: batch)
    trainer = object.__new__(VideoToolsTrainer)
    both = ("a_0_0", "a_1_0")
    run(monkeypatch, rollouts, unjudged=both, trainer=trainer)
    run(monkeypatch, rollouts, unjudged=both, trainer=trainer)
    run(monkeypatch, rollouts, unjudged=("a_0_0",), judged=("a_1_0",), trainer=trainer)
    run(monkeypatch, rollouts, unjudged=both, trainer=trainer)
    run(monkeypatch, rollouts, trainer=trainer)
    run(monkeypatch, rollouts, unjudged=("a_0_0",), trainer=trainer)  # its sibling's question needs no judge
    with pytest.raises(JudgeError, match=r"step 1: the judge gave no verdict at all during 3 steps in a row"):
        run(monkeypatch, rollouts, unjudged=both, trainer=trainer)


def test_a_step_of_several_updates_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that answers in one of a step's updates has answered in the step."""
    rollouts = [("a_0_0", 0.0, False), ("a_1_0", 1.0, False)]
    trainer = object.__new__(VideoToolsTrainer)
    both = ("a_0_0", "a_1_0")
    for _ in range(3):
        run(monkeypatch, rollouts, judged=both, trainer=trainer, update=0, num_updates=4)
        for update in (1, 2, 3):
            run(monkeypatch, rollouts, unjudged=both, trainer=trainer, update=update, num_updates=4)
    for step in range(3):
        for update in range(3):
            run(monkeypatch, rollouts, unjudged=both, trainer=trainer, update=update, num_updates=4)
        last = {"unjudged": both, "trainer": trainer, "update": 3, "num_updates": 4}
        if step < 2:
            run(monkeypatch, rollouts, **last)
        else:
            with pytest.raises(JudgeError, match="during 3 steps in a row"):
                run(monkeypatch, rollouts, **last)


@pytest.mark.parametrize("penalties", [None, {"b_0_0": 0.1}])
@pytest.mark.parametrize("flagged_mask", [(1, 0, 1), (0, 0, 0)], ids=["interrupted", "unreadable"])
def test_an_update_whose_rollouts_all_failed_ends_no_step_that_has_others(
    flagged_mask: tuple[int, ...], penalties: dict[str, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts that fail are the first to finish, and fill a small mini-batch together."""
    updated: list[KVBatchMeta] = []
    monkeypatch.setattr(trainer_base.PPOTrainer, "_update_actor", lambda self, batch, metrics: updated.append(batch))
    failed, fine = [("a_0_0", 0.0, True), ("a_1_0", 0.0, True)], [("b_0_0", 0.0, False), ("b_1_0", 1.0, False)]
    batch = KVBatchMeta(keys=[], tags=[], partition_id="train")

    def step(*updates: list[tuple[str, float, bool]]) -> int:
        updated.clear()
        trainer = object.__new__(VideoToolsTrainer)
        for update, rollouts in enumerate(updates):
            place = {"trainer": trainer, "update": update, "num_updates": len(updates)}
            rows = run(monkeypatch, rollouts, **place, flagged_mask=flagged_mask, penalties=penalties)
            trainer._update_actor(batch, {})
            if rollouts is failed:
                assert all(not any(values) for values in advantages(rows).values())
                for row in rows.values():
                    assert row["returns"].shape == row["response_mask"].shape
                    assert ("token_level_rewards" in row) == (penalties is not None)
        return len(updated)

    assert step(failed, fine) == 1
    assert step(fine, failed) == 1
    assert step(failed, fine, failed) == 1
    with pytest.raises(VideoToolsError, match="all 2 rollouts failed"):
        step(failed, failed)


@pytest.mark.parametrize("on_failure", ["flag", "stop"])
def test_validation_without_verdicts(monkeypatch: pytest.MonkeyPatch, on_failure: str, tmp_path: Path) -> None:
    metrics = {"val-aux/world/judge_failed/mean@1": 0.25, "val-core/world/acc/mean@1": 0.5}

    def validate(self: VideoToolsTrainer) -> dict[str, float]:
        self._logging._validation_lines.append({"uid": "a"})
        return metrics

    monkeypatch.setattr(trainer_base.PPOTrainer, "_validate", validate)
    trainer = object.__new__(VideoToolsTrainer)
    judge = {"base_url": "http://judge/v1", "on_failure": on_failure}
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"custom": {"video_tools": {"judge": judge}}}}})
    trainer.global_steps, trainer.val_dataloader, trainer.total_training_steps = 0, None, 1
    trainer._options, trainer._judge_watch = TrainerOptions(), JudgeWatch(judge_config(trainer.config))
    trainer._logging = run_logging(trainer, tmp_path)
    trainer._logging._validation_lines = [{"uid": "of an earlier validation"}]
    if on_failure == "flag":
        assert trainer._validate() == metrics
    else:
        with pytest.raises(JudgeError, match="gave no verdict"):
            trainer._validate()
    assert (tmp_path / "trajectories" / "val_step_000000.jsonl").read_text() == '{"uid": "a"}\n'
