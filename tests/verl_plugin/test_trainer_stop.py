"""A stop file: the step under way ends, its checkpoint is saved once, and no further step begins."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from verl.trainer.ppo.v1 import trainer_base, trainer_sync

from tests.verl_plugin.trainer_batches import run_logging
from verl_video_tools.launch import train as launch
from verl_video_tools.verl_plugin.watchdog import ActorCheck


class Trainer(trainer_module.VideoToolsTrainer):
    """Notes what it does; `ask_in` is the step in which the file appears."""

    def __init__(self, folder: Path, save_freq: int, ask_in: int) -> None:
        self.config = OmegaConf.create({"trainer": {"max_actor_ckpt_to_keep": None, "default_local_dir": str(folder)}})
        self._stop_file, self._saved_step = folder / trainer_module.STOP_FILE, -1
        self._actors, self._watchdog = ActorCheck(), None
        self.global_steps, self._logging = 0, run_logging(self, folder)
        self.save_freq, self.ask_in = save_freq, ask_in
        self.told: list[str] = []


def fit(self: Any, agent_loop_manager: Any) -> None:
    """The order of verl's own loop."""
    for self.global_steps in range(1, 6):
        self.on_step_begin()
        self.told.append(f"step {self.global_steps}")
        if self.global_steps == self.ask_in:
            self._stop_file.touch()
        if self.global_steps % self.save_freq == 0:
            self._save_checkpoint()
        self.on_step_end()
        self.told.append(f"metrics {self.global_steps}")


def test_the_launcher_names_the_file_that_the_trainer_looks_for() -> None:
    assert launch.STOP_FILE == trainer_module.STOP_FILE


@pytest.mark.parametrize("save_freq", [2, 100])
def test_a_stop_file_ends_the_run_after_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], save_freq: int
) -> None:
    monkeypatch.setattr(trainer_base.PPOTrainer, "fit", fit)
    monkeypatch.setattr(
        trainer_base.PPOTrainer, "_save_checkpoint", lambda self: self.told.append(f"saved {self.global_steps}")
    )
    monkeypatch.setattr(trainer_sync.PPOTrainerSync, "on_step_end", lambda self: None)
    monkeypatch.setattr(
        trainer_base.PPOTrainer, "_shutdown_dump_executor", lambda self: self.told.append("files closed")
    )
    trainer = Trainer(tmp_path, save_freq, ask_in=2)
    trainer.fit(SimpleNamespace(agent_loop_workers=[]))
    assert trainer.told == ["step 1", "metrics 1", "step 2", "saved 2", "metrics 2", "files closed"]
    assert not trainer._stop_file.exists()
    assert "stopped after step 2, whose checkpoint is saved" in capsys.readouterr().out
