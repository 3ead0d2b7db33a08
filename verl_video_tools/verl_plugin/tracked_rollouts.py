"""A few rollouts of a step as pictures in a tracker: those of the group whose rewards differ most.

The option `video_tools.trainer.tracked_rollouts_every` (default 10: so many steps lie between; 0: never) says when.
Only for trackers that show pictures; the module of a tracker is the one that verl has imported, since `trainer.logger`
names it.

A caption holds text of rows and of the model, which may be anything. wandb and SwanLab show it as text, MLflow shows a
file that ends with `.txt` as text, and TensorBoard renders it as Markdown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from verl_video_tools.records.rollout_picture import outcome, rollout_picture

EVERY_STEPS = 10

Send = Callable[[Any, str, Image.Image, str, int], None]
"""Sends a picture to one of verl's backends: backend, name, picture, caption, step."""


def _module(backend: Any, name: str, picture: Image.Image, caption: str, step: int) -> None:
    """The modules `wandb` and `swanlab` are verl's backends themselves."""
    backend.log({name: backend.Image(picture, caption=caption)}, step=step)


def _mlflow(_: Any, name: str, picture: Image.Image, caption: str, step: int) -> None:
    """Into the run that verl has started; `mlflow.log_image` would start another where that one is over."""
    import mlflow

    run = mlflow.active_run()
    if run is None:
        raise RuntimeError("no MLflow run is active in this thread, so that rollouts are not shown there")
    client = mlflow.MlflowClient()
    client.log_image(run.info.run_id, picture, key=name, step=step)
    client.log_text(run.info.run_id, caption, f"{name}/step_{step}.txt")


def _tensorboard(backend: Any, name: str, picture: Image.Image, caption: str, step: int) -> None:
    backend.writer.add_image(name, np.asarray(picture), step, dataformats="HWC")
    backend.writer.add_text(name, as_code_block(caption), step)


SENDERS: Mapping[str, Send] = {
    "wandb": _module,
    "swanlab": _module,
    "mlflow": _mlflow,
    "tensorboard": _tensorboard,
}
"""By verl's name of a backend."""


def track(
    backends: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    step: int,
    senders: Mapping[str, Send] = SENDERS,
) -> None:
    """Send pictures of a step's rollouts to those backends that show any.

    Args:
        backends: verl's (`Tracking.logger`), by name.
        lines: of records, as `records.read_records` gives them.
        senders: by name of a backend. One that raises ends the call.
    """
    names = [name for name in backends if name in senders]
    if not names:
        return
    for number, line in enumerate(chosen(lines)):
        picture, caption = rollout_picture(line), caption_of(line)
        for name in names:
            senders[name](backends[name], f"rollouts/{number}", picture, caption, step)


def caption_of(line: Mapping[str, Any]) -> str:
    """Question and outcome. Half a surrogate pair, which files and requests cannot hold, becomes a question mark."""
    text = f"{line['trajectory'].question}\n{outcome(line)}"
    return text.encode("utf-8", errors="replace").decode()


def as_code_block(text: str) -> str:
    """Markdown that shows a text as it is: an indented block, which nothing inside can end, as it could a fence."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def chosen(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rollouts of the group whose rewards differ most: the best and the worst."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["uid"]].append(line)
    if not groups:
        return []
    ranked = [sorted(group, key=_score, reverse=True) for group in groups.values()]
    group = max(ranked, key=lambda group: _score(group[0]) - _score(group[-1]))
    return [group[0], *group[1:][-1:]]


def _score(line: Mapping[str, Any]) -> float:
    return float(line["reward"].get("score", 0.0))
