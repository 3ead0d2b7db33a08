"""Rollouts in trackers: which ones, when, and in the trackers' own files."""

# Imports after a skip: what they name is not there on every machine.
# ruff: noqa: E402

from __future__ import annotations

import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from PIL import Image

trainer_module = pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from tests.verl_plugin.trainer_batches import bare_trainer, run_logging
from tests.videos.files import MakeVideo
from tests.viewer_page import line
from verl_video_tools.core.types import Trajectory
from verl_video_tools.verl_plugin.run_logging import SENDERS, RunLogging, as_code_block, chosen, track


def scored(uid: str, score: float, question: str = "q?") -> dict[str, Any]:
    trajectory = Trajectory("longvt", question)
    return {"step": 1, "uid": uid, "ground_truth": "A", "reward": {"score": score}, "trajectory": trajectory}


def test_best_and_worst_of_the_group_that_differs_most() -> None:
    lines = [
        scored("a", 1.0),
        scored("a", 0.9),
        *(scored("b", score) for score in (0.5, 0.0, 0.7, 0.2)),
        scored("c", 3.0),
    ]
    scores = [each["reward"]["score"] for each in chosen(lines)]
    assert scores == [0.7, 0.0]
    assert chosen([]) == [] and chosen(lines[-1:]) == lines[-1:]


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
    module = "verl_video_tools.verl_plugin.run_logging.rollout_picture"
    monkeypatch.setattr(module, lambda _: pytest.fail("drawn for nobody"))
    track({"console": None, "file": None}, [scored("a", 1.0)], 10)


def test_tensorboard_has_it(make_video: MakeVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By verl's own adapter, whose writer is taken."""
    pytest.importorskip("torch.utils.tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from verl.utils.tracking import Tracking

    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path))
    tracking = Tracking("p", "e", ["tensorboard"])
    made = {"step": 10, "uid": "a", "ground_truth": "B", **line(path=make_video(300))}
    made["trajectory"].question = "half of \ud83d?\n\n# a title\n![](https://example.org/beacon.png)"
    track(tracking.logger, [made], 10)
    tracking.finish()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    (image,) = events.Images("rollouts/0")
    assert (image.step, image.width) == (10, 1000)
    (text,) = events.Tensors("rollouts/0/text_summary")[0].tensor_proto.string_val
    shown = text.decode().split("\n")
    assert shown[:4] == ["    half of ??", "    ", "    # a title", "    ![](https://example.org/beacon.png)"]
    assert len(shown) == 5 and shown[4].startswith("    truth 'B', answer 'B'")


MARKUP = st.sampled_from(
    [
        *("\n", "\r", "\r\n", "\x0b", "\x85", "\u2028", "\x02", "\x03", " ", "    ", "\t", "| a |", "[a]: https://a.b"),
        *("```", "~~~", "`", "#", ">", "*", "1.", "---", "\\", "![](https://a.b/c.png)", "[a](https://a.b)", "[a]"),
        *("<https://a.b>", "<img src=x>", "<script>", "</script>", "<div>", "</code></pre>", "<!--", "-->", "<?"),
        *("<![CDATA[", "]]>", "&lt;", "a"),
    ]
)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.lists(MARKUP).map("".join))
@example("a\n\n```\n![](https://a.b/c.png)\n```\n")
@example("</code></pre>\n<img src=https://a.b/c.png>")
def test_no_text_gets_out_of_a_code_block(text: str) -> None:
    """As TensorBoard renders it."""
    render = pytest.importorskip("tensorboard.plugin_util").markdown_to_safe_html
    page = Tags(render(as_code_block(f"question: {text}\ntruth 'A'")))
    assert page.tags == ["pre", "code"]
    wanted = text.replace("\x02", "").replace("\x03", "")  # Python's Markdown takes them for itself
    assert "".join(page.text.split()) == "question:" + "".join(wanted.split()) + "truth'A'"


class Runs:
    """A stand-in for the module `mlflow`."""

    def __init__(self, run: str | None) -> None:
        self.run = run
        self.logged: list[tuple[Any, ...]] = []

    def active_run(self) -> Any:
        return self.run and SimpleNamespace(info=SimpleNamespace(run_id=self.run))

    def MlflowClient(self) -> Any:
        return SimpleNamespace(
            log_image=lambda run, picture, key, step: self.logged.append((run, picture.width, key, step)),
            log_text=lambda run, text, name: self.logged.append((run, text.encode().splitlines()[0], name)),
        )

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"mlflow.{name} may start a run")


def test_mlflow_has_it_in_the_run_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Runs("r1")
    monkeypatch.setitem(sys.modules, "mlflow", module)
    track({"mlflow": None}, [scored("a", 1.0, "half of \ud83d?")], 10)
    assert module.logged == [("r1", 1000, "rollouts/0", 10), ("r1", b"half of ??", "rollouts/0/step_10.txt")]


def test_without_a_run_of_mlflow_none_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Runs(None)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    with pytest.raises(RuntimeError, match="no MLflow run is active"):
        track({"mlflow": None}, [scored("a", 1.0)], 10)
    assert module.logged == []


def test_mlflow_s_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    mlflow.set_experiment("e")
    with mlflow.start_run() as run:
        track({"mlflow": None}, [scored("a", 1.0, "half of \ud83d?")], 10)
    (text,) = tmp_path.rglob("step_10.txt")
    assert text.read_text(encoding="utf-8").startswith("half of ??\n")
    (picture,) = tmp_path.rglob("rollouts*.png")
    assert run.info.run_id in str(picture) and Image.open(picture).width == 1000
    with pytest.raises(RuntimeError, match="no MLflow run is active"):
        track({"mlflow": None}, [scored("a", 1.0)], 20)
    assert mlflow.active_run() is None


@pytest.mark.slow
def test_wandb_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(project="p", dir=tmp_path):
        track({"wandb": wandb}, [scored("a", 1.0, "half of \ud83d?")], 10)
    (picture,) = tmp_path.rglob("0_*.png")
    assert picture.stat().st_size > 1000


def test_every_backend_is_one_of_verl_s() -> None:
    from verl.utils.tracking import Tracking

    assert set(SENDERS) <= set(Tracking.supported_backend)


def stepped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backends: dict[str, Any], every: int
) -> tuple[RunLogging, Callable[[int], None]]:
    """The logging of a run whose steps have one rollout each, and what takes a step."""
    monkeypatch.setattr(RunLogging, "_lines", lambda *_, **__: [scored("a", 1.0)])
    trainer = bare_trainer()
    trainer.config = OmegaConf.create({})
    logging = run_logging(trainer, tmp_path, tracked_rollouts_every=every)
    return logging, lambda step: logging.record_step(SimpleNamespace(), step, backends, {})


def test_a_step_shows_rollouts_each_so_many_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = Module()
    logging, take_step = stepped(monkeypatch, tmp_path, {"wandb": module}, every=2)
    for step in range(1, 6):
        take_step(step)
    assert [step for step, _ in module.logged] == [2, 4]
    assert sum(each.num_failures for each in logging.trackers) == 0


def test_a_tracker_that_fails_ends_no_run_and_keeps_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken, module = Module(), Module()
    monkeypatch.setattr(broken, "log", lambda *_, **__: 1 / 0)
    logging, take_step = stepped(monkeypatch, tmp_path, {"wandb": broken, "swanlab": module}, every=1)
    for step in (1, 2):
        take_step(step)
    assert [step for step, _ in module.logged] == [1, 2]
    assert [each.num_failures for each in logging.trackers if each.num_failures] == [2]


def test_a_rollout_that_cannot_be_drawn_ends_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("verl_video_tools.verl_plugin.run_logging.rollout_picture", lambda _: 1 / 0)
    logging, take_step = stepped(monkeypatch, tmp_path, {"wandb": Module()}, every=1)
    take_step(1)
    assert [each.num_failures for each in logging.trackers if each.num_failures] == [1]
