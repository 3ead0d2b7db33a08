"""How the taps get into verl's workers, and what a run that cannot work is told."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.cloudpickle
import torch
from verl.utils.import_utils import load_class_from_fqn

from tests.loop_check.runs import run_config
from tests.verl_plugin.ranks import run_apart
from verl_video_tools.core.errors import SetupError, UsageError
from verl_video_tools.loop_check import callback, worker
from verl_video_tools.loop_check.faults import FAULTS
from verl_video_tools.loop_check.records import FOLDER_VARIABLE, STALE_VARIABLE, STALE_WEIGHTS, read_settings
from verl_video_tools.loop_check.stale_updates import is_dropped

MANAGERS = ("StockManager", "VideoManager")


@pytest.mark.slow
@pytest.mark.parametrize("name", MANAGERS)
def test_verl_finds_the_managers(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    manager = load_class_from_fqn(f"verl_video_tools.loop_check.worker.{name}", "AgentLoopManager")
    config = run_config(agent_name="tool_agent")
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(SetupError, match=FOLDER_VARIABLE):
        manager(config, None)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert issubclass(manager(config, None).agent_loop_workers_class.__ray_actor_class__, worker.LoopTap)


@pytest.mark.slow
def test_workers_reach_another_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By value, as Ray sends classes that no name leads to; the taps by name, since all share one context variable."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    config, calls = run_config(agent_name="tool_agent"), []
    for name in MANAGERS:
        tapped = getattr(worker, name)(config, None).agent_loop_workers_class.__ray_actor_class__
        path = tmp_path / name
        path.write_bytes(ray.cloudpickle.dumps(tapped))
        calls.append((str(path), tapped.__name__))
    run_apart(unpickle, *calls, timeout_seconds=100)


def unpickle(path: str, name: str) -> None:
    worker_class = pickle.loads(Path(path).read_bytes())
    assert worker_class.__name__ == name
    assert worker_class.__mro__[1] is worker.LoopTap, worker_class.__mro__
    assert "AgentLoopWorkerTQ" in [each.__name__ for each in worker_class.__mro__]


def test_which_fault_a_row_plants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STALE_VARIABLE, raising=False)
    for nothing in (None, {}, {"fault": None}, {"fault": ""}):
        assert worker.planted_fault(nothing, 1) is None
    assert [worker.planted_fault({"fault": name}, 1) for name in FAULTS] == list(FAULTS)
    with pytest.raises(UsageError, match=r"'my_fault'.*missing_image"):
        worker.planted_fault({"fault": "my_fault"}, 1)


def test_stale_weights_take_the_place_of_other_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STALE_VARIABLE, "3")
    assert worker.planted_fault({"fault": "wrong_order"}, 2) == "wrong_order"
    assert worker.planted_fault({"fault": "wrong_order"}, 3) == worker.planted_fault(None, 4) == STALE_WEIGHTS


def test_weights_of_which_step_are_dropped() -> None:
    """The first update comes before step 1."""
    assert [number for number in range(1, 6) if is_dropped(number, 3)] == [3, 4, 5]


def test_the_callback_writes_the_runs_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    options = ("actor_rollout_ref.rollout.temperature=0.7", "+data.mm_processor_kwargs.max_pixels=3136")
    config = run_config(*options, agent_name="tool_agent")
    tap = load_class_from_fqn("verl_video_tools.loop_check.callback.TrainedTap", "CheckpointCallback")
    tap(config=config)
    settings = read_settings(tmp_path)
    assert settings is not None
    assert (settings.estimator, settings.temperature, settings.top_p, settings.top_k) == ("grpo", 0.7, 1.0, -1)
    assert (settings.divides_by_std, settings.kl_in_reward) == (True, False)
    assert settings.logprobs_mode == "processed_logprobs" and settings.mm_processor_kwargs == {"max_pixels": 3136}


def test_fields_that_a_run_does_not_have() -> None:
    config = run_config(agent_name="tool_agent")
    assert callback.optional_fields(config) == ["rollout_log_probs", "old_log_probs"]
    silent = run_config("actor_rollout_ref.rollout.calculate_log_probs=False", agent_name="tool_agent")
    assert callback.optional_fields(silent) == ["old_log_probs"]
    bypass = run_config("algorithm.rollout_correction.bypass_mode=True", agent_name="tool_agent")
    assert callback.optional_fields(bypass) == ["rollout_log_probs"]


def test_rows_that_a_step_has_not_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt, verl's padding, and a row that is waiting for a later step."""
    ones = torch.ones(3)
    mask = torch.tensor([0, 1, 1])
    scores = torch.tensor([0.0, 0.0, 0.5])
    held = {
        "g_1_0": {"response_mask": mask, "advantages": 2 * ones, "rm_scores": scores, "old_log_probs": -ones},
        "h_0_0": {"response_mask": mask, "rm_scores": scores, "old_log_probs": -ones},
    }
    tags = {"g": {"is_prompt": True}, "pad1_0_0": {"is_padding": True}, **{key: {} for key in held}}

    def kv_batch_get(keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        if missing := [name for name in select_fields if name not in held[keys[0]]]:
            raise ValueError(f"empty fields {missing}")
        return {name: held[keys[0]][name][None] for name in select_fields}

    monkeypatch.setattr(callback.tq, "kv_list", lambda partition_id: {partition_id: tags})
    monkeypatch.setattr(callback.tq, "kv_batch_get", kv_batch_get)
    (row,) = callback.trained_rows(4, ["old_log_probs"])
    assert (row.uid, row.session_id, row.sequence, row.step) == ("g", 1, 0, 4)
    assert (row.response_mask, row.advantage, row.score) == ([0, 1, 1], 2.0, 0.5)
    assert (row.log_probs, row.actor_log_probs) == (None, [-1.0] * 3)


def test_a_model_without_an_image_processor() -> None:
    class Base:
        def __init__(self, config: Any) -> None:
            self.processor = None

    tapped: Any = type("Tapped", (worker.LoopTap, Base), {})
    with pytest.raises(SetupError, match="image processor"):
        tapped(SimpleNamespace())
