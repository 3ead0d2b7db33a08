"""What the trainer says of its rows before it starts a worker."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
from omegaconf import DictConfig, OmegaConf

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from verl.trainer.ppo.v1 import trainer_base

from tests.data.row_files import make_row
from tests.verl_plugin.trainer_batches import bare_trainer
from verl_video_tools.config import config_path
from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.run_checks import (
    check_reward_function,
    check_switching,
    check_validation_rows,
    compose_run,
)


class Rows(SimpleNamespace):
    """A data set of verl's."""

    def __len__(self) -> int:
        return len(self.dataframe)


def start(
    monkeypatch: pytest.MonkeyPatch,
    train: list[dict[str, Any]],
    validation: list[dict[str, Any]],
    *,
    batch_size: int = 1,
    steps: int | None = None,
    default_loop: str = "single_turn_agent",
    model_type: str = "qwen2_5_vl",
    **bounds: int,
) -> Any:
    """The trainer's own look at its rows, as verl has read them, and at the bounds of images; the trainer."""

    def init_dataloader(self: Any) -> None:
        self.train_dataset, self.val_dataset = (
            Rows(dataframe=datasets.Dataset.from_list(rows)) for rows in (train, validation)
        )
        self.steps_per_epoch, self.total_training_steps = len(train) // batch_size, steps

    monkeypatch.setattr(trainer_base.PPOTrainer, "_init_dataloader", init_dataloader)
    trainer = bare_trainer()
    agent = {"agent_loop_config_path": str(config_path("agent-loops")), "default_agent_loop": default_loop}
    rollout = {"agent": agent, "n": 4, "val_kwargs": {"n": 1}, "custom": {}}
    reward = {"reward_model": {"enable": False}}
    data = {"mm_processor_kwargs": bounds, "train_batch_size": batch_size}
    model = {"use_remove_padding": True}
    roles = {"rollout": rollout, "actor": {"optim": {"total_training_steps": steps}}, "model": model}
    run = {"total_epochs": 3, "total_training_steps": steps}
    trainer.config = OmegaConf.create({"actor_rollout_ref": roles, "reward": reward, "data": data, "trainer": run})
    family = SimpleNamespace(model_type=model_type, get_text_config=SimpleNamespace)
    size = {"shortest_edge": 1, "longest_edge": 10**6}
    trainer.processor = SimpleNamespace(patch_size=14, merge_size=2, size=size, config=family)
    trainer._init_dataloader()
    return trainer


def test_rows_that_cannot_earn_are_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    rows = [make_row("v.mp4", truth, index=number) for number, truth in enumerate(["(B)", "a foul"])]
    start(monkeypatch, rows, rows[1:])
    assert [message.partition(" cannot earn")[0] for message in caplog.messages] == [
        "1 of 2 training rows of framethinker",
        "1 of 1 validation rows of framethinker",
    ]
    with pytest.raises(UsageError, match="1 of 1 training rows of framethinker cannot earn what the method pays"):
        start(monkeypatch, rows[1:], rows)


def test_a_family_that_nobody_tried_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    rows = [make_row("v.mp4", "(B)")]
    start(monkeypatch, rows, rows)
    assert caplog.messages == []
    start(monkeypatch, rows, rows, model_type="glm4v")
    (line,) = caplog.messages
    assert line.startswith("model_type=glm4v: nobody has tried it")


def test_rows_without_a_loops_name_go_to_the_default_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{name: value for name, value in make_row("v.mp4", "a foul").items() if name != "agent_name"}]
    start(monkeypatch, rows, rows)  # verl's own loop, whose rewards are not ours
    assert caplog.messages == []
    with pytest.raises(UsageError, match="1 of 1 training rows of framethinker cannot earn what the method pays"):
        start(monkeypatch, rows, rows, default_loop="framethinker")


@pytest.mark.parametrize(
    "asked", [{"test_freq": 5}, {"val_before_train": True}, {"val_only": True}], ids=lambda asked: "".join(asked)
)
def test_a_run_that_validates_needs_rows_of_its_own_for_it(asked: dict[str, Any]) -> None:
    def config(val_files: str, **trainer: Any) -> DictConfig:
        options = {"test_freq": -1, "val_before_train": False, "val_only": False, **trainer}
        return OmegaConf.create({"trainer": options, "data": {"train_files": "a.parquet", "val_files": val_files}})

    check_validation_rows(config("a.parquet"))  # recipes hand over the training rows, which nobody then reads
    check_validation_rows(config("b.parquet", **asked))
    with pytest.raises(UsageError, match=r"validates .* on the rows that it trains on, a\.parquet; set VAL_FILES"):
        check_validation_rows(config("a.parquet", **asked))


def test_a_reward_function_that_nobody_would_call_is_refused() -> None:
    def config(name: str | None, path: str | None, manager: str = "VideoToolsRewardManager") -> DictConfig:
        function = {"path": path, "name": name}
        return OmegaConf.create({"reward": {"custom_reward_function": function, "reward_manager": {"name": manager}}})

    check_reward_function(config("compute_score", None))  # verl's default
    check_reward_function(config("scored_by_manager", "pkg://verl_video_tools.verl_plugin.reward_manager"))
    check_reward_function(config("compute_score", "my_reward.py", manager="naive"))
    with pytest.raises(UsageError, match=r"name=compute_score would never be called.*`components`"):
        check_reward_function(config("compute_score", "my_reward.py"))


def test_devices_are_not_lent_while_groups_are_replaced() -> None:
    def config(switches: bool, filters: bool) -> DictConfig:
        separate = {"hybrid_rollout": {"enable_switch": switches}}
        trainer = {"v1": {"separate_async": separate}}
        return OmegaConf.create({"trainer": trainer, "algorithm": {"filter_groups": {"enable": filters}}})

    check_switching(config(True, False))
    check_switching(config(False, True))
    check_switching(OmegaConf.create({"trainer": {}, "algorithm": {"filter_groups": None}}))
    with pytest.raises(UsageError, match="dynamic sampling cannot fill would never end; switch one off"):
        check_switching(config(True, True))


def test_bounds_that_no_image_meets_end_the_run_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would fail the frames of every rollout."""
    rows = [make_row("v.mp4", "(B)")]
    start(monkeypatch, rows, rows, min_pixels=784, max_pixels=784)
    with pytest.raises(UsageError, match="no image has an area from min_pixels=800 to max_pixels=1000"):
        start(monkeypatch, rows, rows, min_pixels=800, max_pixels=1000)
    others = [{**rows[0], "agent_name": "single_turn_agent"}]
    start(monkeypatch, others, others, min_pixels=800, max_pixels=1000)  # verl's own loop


def test_the_last_epoch_ends_with_the_last_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """verl would end there too, but neither save nor validate, as it waits for step 200."""
    rows = [make_row("v.mp4", "(B)", index=number) for number in range(5)]
    trainer = start(monkeypatch, rows, rows, batch_size=2, steps=200)
    assert (trainer.total_training_steps, trainer.config.trainer.total_training_steps) == (6, 6)
    assert trainer.config.actor_rollout_ref.actor.optim.total_training_steps == 6
    said = "3 epochs of 2 steps end before total_training_steps=200: step 6 is the last"
    assert said in capsys.readouterr().out
    for steps in (6, 4, None):
        assert start(monkeypatch, rows, rows, batch_size=2, steps=steps).total_training_steps == steps
    assert capsys.readouterr().out == ""


def test_rows_that_fill_no_batch_end_the_run_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl would load every model, and then divide by no steps."""
    rows = [make_row("v.mp4", "(B)")]
    with pytest.raises(UsageError, match="1 training rows do not fill one batch of 2"):
        start(monkeypatch, rows, rows, batch_size=2)


@pytest.mark.slow
def test_the_trainer_takes_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And refuses them before verl's own trainer is made."""
    made: list[DictConfig] = []

    def init(self: Any, config: DictConfig) -> None:
        made.append(config)
        self.config, self.replay_buffer = config, SimpleNamespace(poll_interval=2.0)

    monkeypatch.setattr(trainer_module.PPOTrainerSync, "__init__", init)
    monkeypatch.setattr(trainer_module, "storage_units", lambda _: [])  # it would start Ray
    set_ = {"record_tokens": "True", "poll_interval_seconds": "0.5", "max_refill_batches": "3"}
    options = [f"++trainer.video_tools.{name}={value}" for name, value in set_.items()]
    run = [f"trainer.default_local_dir={tmp_path}", "trainer.test_freq=-1", "trainer.val_before_train=False", *options]
    trainer = trainer_module.VideoToolsTrainer(compose_run("grpo", run))
    options = trainer._options
    assert (options.record_tokens, options.tracked_rollouts_every, options.max_refill_batches) == (True, 10, 3)
    assert trainer.replay_buffer.poll_interval == 0.5
    with pytest.raises(UsageError, match="did you mean 'record_tokens'"):
        trainer_module.VideoToolsTrainer(compose_run("grpo", [*run, "++trainer.video_tools.record_token=True"]))
    short = "actor_rollout_ref.rollout.max_model_len=1023"  # verl's defaults are 512 tokens each
    with pytest.raises(
        UsageError, match=r"max_model_len=1023 is 1 short of .*set actor_rollout_ref\.rollout\.max_model_len=1024"
    ):
        trainer_module.VideoToolsTrainer(compose_run("grpo", [*run, short]))
    assert len(made) == 1 and not made[0].trainer.val_before_train
    trainer_module.VideoToolsTrainer(
        compose_run("grpo", [*run, "trainer.val_only=True", "data.val_files=held.parquet"])
    )
    assert made[1].trainer.val_before_train, "verl would train"
