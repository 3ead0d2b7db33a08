"""Rollouts in trackers: which ones, when, and in the trackers' own files."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from tests.videos.files import MakeVideo
from tests.viewer_page import line
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Trajectory
from verl_video_tools.verl_plugin.tracked_rollouts import SENDERS, check_options, chosen, track
from verl_video_tools.verl_plugin.trainer_telling import TellingMixin


def scored(uid: str, score: float) -> dict[str, Any]:
    trajectory = Trajectory("longvt", "q?")
    return {"step": 1, "uid": uid, "ground_truth": "A", "reward": {"score": score}, "trajectory": trajectory}


def test_best_and_worst_of_the_group_that_differs_most() -> None:
    lines = [
        scored("a", 1.0),
        scored("a", 0.9),
        *(scored("b", score) for score in (0.5, 0.0, 0.7, 0.2)),
        scored("c", 3.0),
    ]
    scores = [each["reward"]["score"] for each in chosen(lines, 3)]
    assert scores == [0.7, 0.0, 0.2]
    assert chosen([], 2) == []


class Module:
    """What a module such as `wandb` has of all that is asked of it."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, Any]]] = []

    def Image(self, picture: Any, caption: str) -> tuple[Any, str]:
        return picture, caption

    def log(self, data: dict[str, Any], step: int) -> None:
        self.logged.append((step, data))


def test_a_picture_and_its_words_per_rollout() -> None:
    module = Module()
    track({"console": None, "wandb": module}, [scored("a", 1.0), scored("a", 0.0), scored("a", 0.5)], 20)
    assert [(step, list(data)) for step, data in module.logged] == [(20, ["rollouts/0"]), (20, ["rollouts/1"])]
    picture, caption = module.logged[1][1]["rollouts/1"]
    assert picture.width == 1000 and caption.startswith("q?\ntruth 'A'") and "reward 0 " in caption


def test_without_a_tracker_for_pictures_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "verl_video_tools.verl_plugin.tracked_rollouts.rollout_picture"
    monkeypatch.setattr(module, lambda _: pytest.fail("drawn for nobody"))
    track({"console": None, "file": None}, [scored("a", 1.0)], 10)


def test_tensorboard_has_it(make_video: MakeVideo, tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    backend = SimpleNamespace(writer=tensorboard.SummaryWriter(tmp_path))
    made = {"step": 10, "uid": "a", "ground_truth": "B", **line(path=make_video(300))}
    track({"tensorboard": backend}, [made], 10)
    backend.writer.close()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    (image,) = events.Images("rollouts/0")
    assert (image.step, image.width) == (10, 1000)
    assert made["trajectory"].question in str(events.Tensors("rollouts/0/text_summary")[0].tensor_proto.string_val)


def test_wandb_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(project="p", dir=tmp_path):
        track({"wandb": wandb}, [scored("a", 1.0)], 10)
    (picture,) = tmp_path.rglob("0_*.png")
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "every", "count"), [("_every", -1, 2), ("_every", 2.5, 2), ("", 10, 0), ("", 10, True)]
)
def test_options_that_mean_nothing_are_refused(name: str, every: Any, count: Any) -> None:
    with pytest.raises(UsageError, match=rf"trainer\.video_tools\.tracked_rollouts{name} is "):
        check_options(every, count)


def test_every_backend_is_one_of_verl_s() -> None:
    from verl.utils.tracking import Tracking

    assert set(SENDERS) <= set(Tracking.supported_backend)


def test_a_step_shows_rollouts_each_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a tracker that fails ends no run."""
    module, steps = Module(), []
    trainer = object.__new__(trainer_module.VideoToolsTrainer)
    monkeypatch.setattr(TellingMixin, "_lines", lambda *_, **__: [scored("a", 1.0)])
    trainer._write_records = lambda step, lines: steps.append(step)
    trainer._tracked_every, trainer._tracked_count = 2, 1
    trainer.logger = SimpleNamespace(logger={"wandb": module}, log=lambda **_: None)
    for step in range(1, 6):
        trainer.global_steps = step
        if step == 4:
            monkeypatch.setattr(module, "log", lambda *_, **__: 1 / 0)
        trainer._record(SimpleNamespace())
    assert steps == [1, 2, 3, 4, 5]
    assert [step for step, _ in module.logged] == [2]
    assert trainer._track_rollouts.num_failures == 1
