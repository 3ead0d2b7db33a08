"""What the trainer says of its rows before it starts a worker."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import datasets
import pytest
from omegaconf import OmegaConf

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from verl.trainer.ppo.v1 import trainer_base

from tests.data.row_files import make_row
from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.config import config_path


def start(monkeypatch: pytest.MonkeyPatch, train: list[dict[str, Any]], validation: list[dict[str, Any]]) -> None:
    """The trainer's own look at its rows, as verl has read them."""

    def init_dataloader(self: Any) -> None:
        self.train_dataset, self.val_dataset = (
            SimpleNamespace(dataframe=datasets.Dataset.from_list(rows)) for rows in (train, validation)
        )

    monkeypatch.setattr(trainer_base.PPOTrainer, "_init_dataloader", init_dataloader)
    trainer = object.__new__(trainer_module.VideoToolsTrainer)
    agent = {"agent_loop_config_path": str(config_path("agent-loops")), "default_agent_loop": "single_turn_agent"}
    rollout = {"agent": agent, "n": 4, "val_kwargs": {"n": 1}, "custom": {}}
    reward = {"reward_model": {"enable": False}}
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "reward": reward})
    trainer._init_dataloader()


def test_rows_that_cannot_earn_are_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    rows = [make_row("v.mp4", truth, index=number) for number, truth in enumerate(["(B)", "a foul"])]
    start(monkeypatch, rows, rows[1:])
    assert [message.partition(" cannot earn")[0] for message in caplog.messages] == [
        "1 of 2 training rows of framethinker",
        "1 of 1 validation rows of framethinker",
    ]
    with pytest.raises(UsageError, match="1 of 1 training rows of framethinker cannot earn what the method pays"):
        start(monkeypatch, rows[1:], rows)


def test_rows_without_a_loops_name_go_to_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{name: value for name, value in make_row("v.mp4", "a foul").items() if name != "agent_name"}]
    start(monkeypatch, rows, rows)  # verl's own loop, whose rewards are not ours
