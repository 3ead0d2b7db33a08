"""In the course of training fewer rows may be measured than before and after it."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.v1 import trainer_base

from tests.verl_plugin.trainer_batches import run_logging
from verl_video_tools.verl_plugin.settings import TrainerOptions
from verl_video_tools.verl_plugin.trainer import first_rows

ROWS = [{"index": number} for number in range(10)]


def loader(batch_size: int = len(ROWS)) -> StatefulDataLoader:
    """As verl makes it, which shuffles."""
    return StatefulDataLoader(ROWS, batch_size=batch_size, shuffle=True, collate_fn=lambda rows: rows)


def batches(measured: Any) -> list[list[int]]:
    return [[row["index"] for row in batch] for batch in measured]


@pytest.mark.parametrize(
    ("num_rows", "batch_size", "expected"),
    [(3, 10, [[0, 1, 2]]), (3, 2, [[0, 1], [2]]), (99, 10, [list(range(10))])],
)
def test_the_first_rows_in_their_order(num_rows: int, batch_size: int, expected: list[list[int]]) -> None:
    few = first_rows(loader(batch_size), num_rows)
    assert batches(few) == batches(few) == expected


@pytest.mark.parametrize(
    ("step", "val_only", "num_asked"),
    [(0, False, 10), (5, False, 4), (15, False, 4), (20, False, 10), (25, False, 10), (5, True, 10)],
)
def test_all_rows_before_and_after_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: int, val_only: bool, num_asked: int
) -> None:
    """And where a run only measures a checkpoint."""
    asked: list[int] = []

    def validate(self: Any) -> dict[str, float]:
        asked.extend(row["index"] for batch in self.val_dataloader for row in batch)
        return {}

    monkeypatch.setattr(trainer_base.PPOTrainer, "_validate", validate)
    trainer: Any = object.__new__(trainer_module.VideoToolsTrainer)
    trainer.val_dataloader = every_row = loader()
    trainer.config = OmegaConf.create({"trainer": {"val_only": val_only}})
    trainer.global_steps, trainer.total_training_steps = step, 20
    trainer._options, trainer._logging = TrainerOptions(interim_validation_rows=4), run_logging(trainer, tmp_path)
    trainer._judge_watch = type("Watch", (), {"check_failures": lambda *_: None})()
    trainer._validate()
    assert sorted(asked) == list(range(num_asked))
    assert trainer.val_dataloader is every_row


def test_a_measurement_that_fails_leaves_all_rows_to_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def validate(self: Any) -> dict[str, float]:
        raise RuntimeError("the engine is gone")

    monkeypatch.setattr(trainer_base.PPOTrainer, "_validate", validate)
    trainer: Any = object.__new__(trainer_module.VideoToolsTrainer)
    trainer.val_dataloader = every_row = loader()
    trainer.config = OmegaConf.create({"trainer": {}})
    trainer.global_steps, trainer.total_training_steps = 5, 20
    trainer._options, trainer._logging = TrainerOptions(interim_validation_rows=4), run_logging(trainer, tmp_path)
    with pytest.raises(RuntimeError, match="the engine is gone"):
        trainer._validate()
    assert trainer.val_dataloader is every_row
