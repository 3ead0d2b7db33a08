"""What the trainer does when verl's own loop fails, perhaps on something that is dead."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from ray.exceptions import ActorUnavailableError
from verl.trainer.ppo.v1 import trainer_base

from tests.verl_plugin.trainer_batches import bare_trainer, run_logging
from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.settings import TrainerOptions
from verl_video_tools.verl_plugin.watchdog import ActorCheck, watched_actors


class Watchdog:
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def wait_for_verdict(self, is_lost: bool = False) -> None:
        self.calls.append(("verdict", is_lost))

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (ActorUnavailableError("connection refused", None), [("verdict", True)]),
        (RuntimeError("no trajectories"), [("verdict", False)]),  # perhaps of a dead engine
        (UsageError("an unknown option"), []),
    ],
)
def test_the_watchdog_may_name_the_dead_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, waits: list[Any]
) -> None:
    def fit(self: Any, agent_loop_manager: Any) -> None:
        raise error

    monkeypatch.setattr(trainer_base.PPOTrainer, "fit", fit)
    trainer = bare_trainer()
    trainer._watchdog = watchdog = Watchdog()
    trainer.config, trainer.global_steps = OmegaConf.create({}), 0
    trainer._actors, trainer._stop_file = ActorCheck(), tmp_path / "stop_requested"
    trainer._logging = run_logging(trainer, tmp_path)
    with pytest.raises(type(error)):
        trainer.fit(SimpleNamespace(agent_loop_workers=["a", "b"]))
    assert watchdog.calls == [*waits, "stop"]
    assert [actor.label for actor in trainer._actors._watched] == ["agent loop worker 0", "agent loop worker 1"]


def test_a_step_whose_rollouts_failed_waits_for_what_is_dead(capsys: pytest.CaptureFixture[str]) -> None:
    """verl would train on the others: of a step in which the engine died, on half of it."""
    trainer = bare_trainer()
    trainer._watchdog, trainer.global_steps = watchdog, _ = Watchdog(), 7
    trainer._explain_failures(2)
    assert watchdog.calls == [("verdict", False)]
    assert "step 7: rollouts of 2 groups have failed (errors stand above), and are left out" in capsys.readouterr().out


def trainer_with(**more: Any) -> SimpleNamespace:
    replica = SimpleNamespace(servers=["server"], workers=["trains", "engine"])
    manager = SimpleNamespace(get_replicas=lambda: [replica], global_load_balancer="router")
    apart = SimpleNamespace(  # of an engine with devices of its own
        get_replicas=lambda: [SimpleNamespace(servers=["apart"], workers=[], _server_address="10.0.0.2:8000")],
        global_load_balancer="router of its own",
    )
    return SimpleNamespace(
        actor_rollout_wg=SimpleNamespace(workers=["trains"]),
        ref_policy_wg=SimpleNamespace(workers=["trains"]),
        llm_server_manager=manager,
        _rollout_server_managers=lambda: [manager, apart],
        reward_loop_manager=SimpleNamespace(reward_loop_workers=["pays"], reward_model_manager=None),
        teacher_model_manager=None,
        **more,
    )


def test_every_actor_that_a_run_waits_for_is_watched_once() -> None:
    watched = {kind: handles for kind, handles in watched_actors(trainer_with()).items() if handles}
    assert watched == {
        "training worker": ["trains"],
        "inference server": ["server", "apart"],
        "reward worker": ["pays"],
        "router": ["router", "router of its own"],
        "engine worker": ["engine"],
    }


def test_critic_reward_model_and_teachers_are_watched_too() -> None:
    trainer = trainer_with(critic_wg=SimpleNamespace(workers=["values"]))
    judges = SimpleNamespace(rollout_replicas=[SimpleNamespace(servers=["judges"])])
    teacher = SimpleNamespace(rollout_replicas=[SimpleNamespace(servers=["teaches"])])
    trainer.reward_loop_manager.reward_model_manager = judges
    trainer.teacher_model_manager = SimpleNamespace(teacher_model_managers={"any": teacher})
    watched = watched_actors(trainer)
    assert watched["critic worker"] == ["values"]
    assert watched["reward model's server"] == ["judges"]
    assert watched["teacher's server"] == ["teaches"]


def test_the_trainer_watches_the_controller_and_all_that_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead controller hung the run for ever, unseen."""
    monkeypatch.setattr(trainer_module.PPOTrainerSync, "on_init_end", lambda self: None)
    monkeypatch.setattr(trainer_module, "queue_controller", lambda: ["controller"])
    watchdog = SimpleNamespace(start=lambda: None)
    monkeypatch.setattr(trainer_module, "Watchdog", lambda checks, progress, grace_seconds: watchdog)
    monkeypatch.setattr(trainer_module, "describe_run", lambda config, section: None)
    trainer = object.__new__(trainer_module.VideoToolsTrainer)
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {}}})
    vars(trainer).update(vars(trainer_with()), config=config, _actors=ActorCheck(), _options=TrainerOptions())
    trainer.llm_server_manager.get_replicas()[0]._server_address = "10.0.0.1:8000"
    trainer.on_init_end()
    watched = [actor.handle for actor in trainer._actors._watched]
    assert watched == ["controller", "trains", "server", "apart", "pays", "router", "router of its own", "engine"]
