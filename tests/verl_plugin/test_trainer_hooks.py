"""What the trainer adds around verl's loop: an end to dynamic sampling, phases, the mode that verl sees."""

# Imports after a skip: what they name is not there on every machine.

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

from tests.verl_plugin.trainer_batches import bare_trainer, update_filter
from verl_video_tools.core.errors import VideoToolsError
from verl_video_tools.verl_plugin.alarms import JudgeWatch
from verl_video_tools.verl_plugin.settings import TrainerOptions
from verl_video_tools.verl_plugin.trainer import VideoToolsColocateAsyncTrainer, VideoToolsTrainer


def test_a_step_that_can_never_be_filled_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every rollout fails, all rewards of a group are equal, and dynamic sampling asks for others without end."""
    monkeypatch.setattr(trainer_base.PPOTrainer, "_add_prompts_to_generate", lambda self, num_prompts: num_prompts)
    steps: list[str] = []

    def step(self: VideoToolsTrainer, *_: Any) -> None:
        steps.append(self._phase)
        while len(steps) < 3:  # as verl's replay buffer while it waits for a full batch
            self._add_prompts_to_generate(8)

    monkeypatch.setattr(trainer_base.PPOTrainer, "_step_once", step)
    trainer = bare_trainer()
    trainer.config = OmegaConf.create(
        {"algorithm": {"filter_groups": {"enable": True}}, "data": {"train_batch_size": 4}}
    )
    trainer.global_steps, trainer._options = 7, TrainerOptions(max_refill_batches=5)
    trainer._updates = update_filter(trainer)
    trainer._judge_watch = JudgeWatch(None)
    for _ in range(2):  # a second step may ask as often
        with pytest.raises(VideoToolsError, match=r"step 7: 5 batches of 4 questions.*max_refill_batches"):
            trainer._step_once({}, {}, 4)
        assert trainer._num_refilled == 24
    trainer.config.algorithm.filter_groups.enable = False
    assert trainer._add_prompts_to_generate(1000) == 1000


def test_progress_names_what_verl_does_at_the_end_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = object.__new__(VideoToolsTrainer)
    trainer.config = OmegaConf.create({"trainer": {"max_actor_ckpt_to_keep": None, "default_local_dir": str(tmp_path)}})
    trainer._phase, trainer.global_steps, phases = "generating", 7, []
    for name in ("on_sample_end", "_save_checkpoint", "on_step_end"):
        monkeypatch.setattr(PPOTrainerSync, name, lambda self: phases.append(self._phase))
    for hook in (trainer.on_sample_end, trainer._save_checkpoint, trainer.on_step_end):  # verl's order
        hook()
    assert phases[1:] == ["saving a checkpoint", "sending the new weights to the engine"]
    assert trainer._phase == phases[-1]


def test_records_are_written_before_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl saves it after its step; a run that dies then never does the step again."""
    monkeypatch.setattr(trainer_base.PPOTrainer, "step", lambda self, metrics, timing_raw: "batch")
    trainer, written = object.__new__(VideoToolsTrainer), []
    trainer.global_steps = 7
    trainer._updates = SimpleNamespace(trajectories={"a_0_0": "record"})
    trainer._logging = SimpleNamespace(record_step=lambda *arguments: written.append(arguments), trackers=[])
    trainer.logger = SimpleNamespace(logger={}, log=None)
    assert trainer.step({}, {}) == "batch"
    assert written == [("batch", 7, {}, {"a_0_0": "record"})]


def test_a_run_that_was_killed_while_it_named_its_checkpoint_resumes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """verl would take an empty file for a number."""
    (tmp_path / "global_step_7" / "actor").mkdir(parents=True)
    (tmp_path / "global_step_7" / "data.pt").touch()
    (tmp_path / "latest_checkpointed_iteration.txt").touch()
    found: list[str | None] = []
    folder = str(tmp_path)
    monkeypatch.setattr(
        trainer_base.PPOTrainer, "_load_checkpoint", lambda self: found.append(find_latest_ckpt_path(folder))
    )
    trainer = object.__new__(VideoToolsTrainer)
    trainer.config = OmegaConf.create({"trainer": {"resume_mode": "auto", "default_local_dir": folder}})
    trainer._load_checkpoint()
    assert found == [str(tmp_path / "global_step_7")]


@pytest.mark.parametrize(("kept", "expected"), [(2, [20, 30]), (None, [5, 10, 20, 30]), (0, [5, 10, 20, 30])])
def test_checkpoints_of_an_earlier_start_count_among_those_to_keep(
    kept: int | None, expected: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def save(self: VideoToolsTrainer) -> None:
        actor = tmp_path / f"global_step_{self.global_steps}" / "actor"
        actor.mkdir(parents=True)
        (actor / "model.safetensors").touch(mode=0o600)  # as safetensors leaves it
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(str(self.global_steps))

    monkeypatch.setattr(trainer_base.PPOTrainer, "_save_checkpoint", save)
    for step in (5, 10, 20, 30):
        trainer = object.__new__(VideoToolsTrainer)  # each starts anew and knows of no other
        trainer.config = OmegaConf.create(
            {"trainer": {"max_actor_ckpt_to_keep": kept, "default_local_dir": str(tmp_path)}}
        )
        trainer.global_steps = step
        trainer._save_checkpoint()
    assert sorted(int(path.parent.name.removeprefix("global_step_")) for path in tmp_path.glob("*/actor")) == expected
    modes = {path.stat().st_mode & 0o666 == path.parent.stat().st_mode & 0o666 for path in tmp_path.rglob("model.*")}
    assert modes == {True}, "others may read what the umask lets them"


@pytest.mark.parametrize(
    ("registered", "mode"), [(VideoToolsTrainer, "sync"), (VideoToolsColocateAsyncTrainer, "colocate_async")]
)
def test_the_mode_that_verl_sees_is_its_own(registered: type[trainer_base.PPOTrainer], mode: str) -> None:
    trainer = object.__new__(registered)
    trainer.trainer_mode = "video_tools"  # as verl's constructor sets it from the options
    assert trainer.trainer_mode == mode
    assert issubclass(registered, trainer_base.get_trainer_cls(mode))
