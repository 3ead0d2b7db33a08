"""The SFT trainer's loop over epochs: which rows each has, also after a resumed one, and which step is the last."""

from __future__ import annotations

from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from omegaconf import OmegaConf

pytest.importorskip("verl", reason="the trainer subclasses verl's")

from verl.trainer import sft_trainer

from verl_video_tools.verl_plugin.sft_trainer import LearntDialogues, VideoToolsSFTTrainer

NUM_ROWS, BATCH = 8, 2


@pytest.fixture(autouse=True)
def _no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sft_trainer, "aggressive_empty_cache", lambda **_: None)
    monkeypatch.setattr(sft_trainer, "log_gpu_memory_usage", lambda *_, **__: None)


class Kept:
    """Checkpoints of the data loader, as verl's handler keeps them."""

    def __init__(self, loader: Any) -> None:
        self.train_dataloader = loader
        self.states: dict[int, Any] = {}

    def save_checkpoint(self, step: int) -> None:
        self.states[step] = self.train_dataloader.state_dict()


class Trainer(VideoToolsSFTTrainer):
    def _build_ckpt_handler(self) -> None:
        self.ckpt_handler = Kept(self.train_dataloader)


def no_loss(**arguments: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    return torch.zeros(()), {}


def made_trainer(epochs: int, save_freq: int, steps: int | None = None, test_freq: int = -1) -> Any:
    """verl's trainer of 8 rows in batches of 2, without a model: it notes the rows of each step."""
    trainer = object.__new__(Trainer)
    data = {"train_batch_size": BATCH, "num_workers": 0, "pad_mode": "no_padding", "use_dynamic_bsz": False}
    data |= {"max_token_len_per_gpu": 8, "micro_batch_size_per_gpu": 1}
    run = {"total_epochs": epochs, "save_freq": save_freq, "test_freq": test_freq, "total_training_steps": steps}
    run |= {"default_local_dir": "no_such_folder"}  # whose weights would get their permissions
    trainer.config = OmegaConf.create({"data": data, "trainer": run, "model": {"use_remove_padding": True}})
    trainer.engine = SimpleNamespace(
        get_data_parallel_rank=lambda: 0,
        get_data_parallel_size=lambda: 1,
        get_data_parallel_group=lambda: None,
        is_mp_src_rank_with_outputs=lambda: False,
    )
    tensors = [torch.tensor([row, row]) for row in range(NUM_ROWS)]
    trainer.train_dataset = [{"input_ids": each, "loss_mask": torch.ones_like(each)} for each in tensors]
    trainer.val_dataset, trainer.rank, trainer.device_name, trainer.resume_global_step = None, 0, "cpu", 0
    trainer.start_profile_step = trainer.end_profile_step = -1
    trainer.model_config = SimpleNamespace(tokenizer=SimpleNamespace(pad_token_id=0))
    trainer.optimizer_config = SimpleNamespace()
    trainer.seen = []
    trainer.learnt = LearntDialogues(no_loss)

    def train_batch(data: Any) -> None:
        trainer.seen.append(sorted(int(row[0]) for row in data["input_ids"].unbind()))

    trainer.training_client = SimpleNamespace(train_batch=train_batch, step_profile=lambda: None, reset=lambda: None)
    trainer._build_dataloader()
    trainer._init_engine()
    trainer._build_ckpt_handler()
    return trainer


def resumed(state: Any, step: int, **options: Any) -> Any:
    trainer = made_trainer(**options)
    trainer.train_dataloader.load_state_dict(state)
    trainer.resume_global_step = step
    return trainer


@pytest.mark.parametrize("step", [2, 4, 8])
def test_a_resumed_run_takes_the_rows_that_are_left(step: int) -> None:
    """At 4 and 8 an epoch is over: verl's own trainer leaves the next one out, and saves no last step."""
    options = {"epochs": 3, "save_freq": 2}
    whole = made_trainer(**options)
    whole.fit()
    assert len(whole.seen) == 12 and sorted(chain.from_iterable(whole.seen[:4])) == list(range(NUM_ROWS))
    rest = resumed(whole.ckpt_handler.states[step], step, **options)
    rest.fit()
    assert rest.seen == whole.seen[step:]
    assert list(rest.ckpt_handler.states) == list(range(step + 2, 13, 2))
    again = resumed(rest.ckpt_handler.states[12], 12, **options)
    again.fit()
    assert again.seen == []


def test_a_checkpoint_after_a_resumed_epoch_is_of_the_loader_in_use() -> None:
    options = {"epochs": 3, "save_freq": 2}
    whole = made_trainer(**options)
    whole.fit()
    first = resumed(whole.ckpt_handler.states[4], 4, **options)
    first.fit()
    second = resumed(first.ckpt_handler.states[6], 6, **options)
    second.fit()
    assert second.seen == whole.seen[6:]


def test_the_last_epoch_ends_with_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    """Where more steps are asked for than the epochs have."""
    trainer = made_trainer(epochs=2, save_freq=3, steps=100)
    assert "2 epochs of 4 steps end before total_training_steps=100: step 8 is the last" in capsys.readouterr().out
    trainer.fit()
    assert list(trainer.ckpt_handler.states) == [3, 6, 8]
    assert trainer.optimizer_config.total_training_steps == 8, "the learning rate decays to its end"
    fewer = made_trainer(epochs=2, save_freq=100, steps=5)
    fewer.fit()
    assert list(fewer.ckpt_handler.states) == [5] and capsys.readouterr().out.count("is the last") == 0


def test_a_run_that_is_over_trains_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    """Within an epoch, too: the same command again would train on a batch and export that."""
    options = {"epochs": 3, "save_freq": -1, "steps": 5}
    whole = made_trainer(**options)
    whole.fit()
    again = resumed(whole.ckpt_handler.states[5], 5, **options)
    again.fit()
    assert (again.seen, again.ckpt_handler.states) == ([], {})
    assert "the run is over: step 5 of 5" in capsys.readouterr().out


def test_intervals_of_no_steps_are_never() -> None:
    trainer = made_trainer(epochs=1, save_freq=0, test_freq=0)
    trainer.fit()
    assert list(trainer.ckpt_handler.states) == [4], "the last step's"


def nested(*rows: list[float]) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


def test_what_the_model_would_write_itself_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Log-probabilities stand one place before their tokens; -0.7 is below a half."""
    learnt = LearntDialogues(no_loss)
    reproduced, other = [-9.0, -0.1, -0.6, -9.0], [-9.0, -0.1, -0.7, -0.1]
    masks = nested([0, 0, 1, 1], [0, 0, 1, 1])
    learnt.loss({"log_probs": nested(reproduced, other)}, {"loss_mask": masks})
    learnt.loss({"log_probs": nested([-0.1, -0.1])}, {"loss_mask": nested([1, 0])})  # a row without trained tokens
    with torch.no_grad():  # a validation
        learnt.loss({"log_probs": nested(reproduced)}, {"loss_mask": nested([0, 0, 1, 1])})
    summary = learnt.summary("cpu", None)
    assert summary.startswith(
        "of the last 2 dialogues that it was trained on, the model would write 1 word for word; 75%"
    )
    assert "train longer" not in summary

    trainer = made_trainer(epochs=1, save_freq=100)
    trainer.learnt.loss({"log_probs": nested([-3.0, -3.0, -0.1])}, {"loss_mask": nested([0, 1, 1])})
    trainer.fit()
    printed = capsys.readouterr().out
    assert "[verl_video_tools] of the last 1 dialogues" in printed and "; 0% of their tokens are likely" in printed
    assert "train longer (trainer.total_epochs)" in printed


def test_the_loss_stays_that_of_verl() -> None:
    from verl.utils import tensordict_utils
    from verl.workers.utils.losses import sft_loss

    log_probs, mask = nested([-1.0, -2.0, -3.0], [-4.0, -5.0]), nested([0, 1, 1], [0, 1])
    data = tensordict_utils.get_tensordict({"loss_mask": mask}, {"dp_size": 1, "batch_num_tokens": 3})
    learnt = LearntDialogues(partial(sft_loss, config=None))
    loss, metrics = learnt.loss({"log_probs": log_probs}, data)
    assert (loss.item(), metrics) == (pytest.approx((1 + 2 + 4) / 3), {})


def test_dialogues_of_all_ranks_count(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt, group = LearntDialogues(no_loss), object()
    learnt.loss({"log_probs": nested([-0.1, -0.1])}, {"loss_mask": nested([0, 1])})
    reduced = []
    monkeypatch.setattr(dist, "all_reduce", lambda sums, group: reduced.append((sums.mul_(2), group)))
    assert learnt.summary("cpu", group).startswith("of the last 2 dialogues")
    assert reduced[0][1] is group
