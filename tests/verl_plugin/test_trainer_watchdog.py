"""What the trainer does when verl's own loop fails on a dead actor."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from ray.exceptions import ActorUnavailableError
from verl.trainer.ppo.v1 import trainer_base

from verl_video_tools.verl_plugin.actor_check import ActorCheck


class Watchdog:
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def join(self, timeout_seconds: float) -> None:
        self.told.append(timeout_seconds)

    def stop(self) -> None:
        self.told.append("stop")


@pytest.mark.parametrize(
    ("error", "waits"), [(ActorUnavailableError("connection refused", None), [60.0]), (ValueError("a bug"), [])]
)
def test_the_watchdog_may_name_the_dead_first(
    monkeypatch: pytest.MonkeyPatch, error: Exception, waits: list[float]
) -> None:
    def fit(self: Any, agent_loop_manager: Any) -> None:
        raise error

    monkeypatch.setattr(trainer_base.PPOTrainer, "fit", fit)
    trainer = object.__new__(trainer_module.VideoToolsTrainer)
    watchdog = Watchdog()
    trainer._watchdog, trainer._watchdog_grace_seconds = watchdog, 60.0
    trainer._actors = ActorCheck()
    with pytest.raises(type(error)):
        trainer.fit(SimpleNamespace(agent_loop_workers=["a", "b"]))
    assert watchdog.told == [*waits, "stop"]
    assert [actor.label for actor in trainer._actors._watched] == ["agent loop worker 0", "agent loop worker 1"]
