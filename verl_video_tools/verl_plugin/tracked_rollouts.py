"""A few rollouts of a step as pictures in a tracker: those of the group whose rewards differ most.

Options under `trainer.video_tools`: `tracked_rollouts_every` (default 10: so many steps lie between; 0: never) and
`tracked_rollouts` (default 2: the best and the worst of the group, then those between). Only for trackers that show
pictures; the module of a tracker is the one that verl has imported, since `trainer.logger` names it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from verl_video_tools.core.errors import UsageError
from verl_video_tools.records.rollout_picture import outcome, rollout_picture

EVERY_STEPS, COUNT = 10, 2

Send = Callable[[Any, str, Image.Image, str, int], None]
"""Sends a picture to one of verl's backends: backend, name, picture, caption, step."""


def _module(backend: Any, name: str, picture: Image.Image, caption: str, step: int) -> None:
    """The modules `wandb` and `swanlab` are verl's backends themselves."""
    backend.log({name: backend.Image(picture, caption=caption)}, step=step)


def _mlflow(_: Any, name: str, picture: Image.Image, caption: str, step: int) -> None:
    import mlflow

    mlflow.log_image(picture, key=name, step=step)
    mlflow.log_text(caption, f"{name}/step_{step}.txt")


def _tensorboard(backend: Any, name: str, picture: Image.Image, caption: str, step: int) -> None:
    backend.writer.add_image(name, np.asarray(picture), step, dataformats="HWC")
    backend.writer.add_text(name, caption, step)


SENDERS: Mapping[str, Send] = {
    "wandb": _module,
    "swanlab": _module,
    "mlflow": _mlflow,
    "tensorboard": _tensorboard,
}
"""By verl's name of a backend."""


def check_options(every_steps: object, count: object) -> None:
    """Raises UsageError for values that mean nothing."""
    for name, value, least in (("tracked_rollouts_every", every_steps, 0), ("tracked_rollouts", count, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(f"trainer.video_tools.{name} is {value!r}; it must be a whole number from {least} on")


def track(backends: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], step: int, count: int = COUNT) -> None:
    """Send pictures of a step's rollouts to those backends that show any.

    Args:
        backends: verl's (`Tracking.logger`), by name.
        lines: of records, as `records.read_records` gives them.
    """
    senders = {name: SENDERS[name] for name in backends if name in SENDERS}
    if not senders:
        return
    for number, line in enumerate(chosen(lines, count)):
        picture, caption = rollout_picture(line), f"{line['trajectory'].question}\n{outcome(line)}"
        for name, send in senders.items():
            send(backends[name], f"rollouts/{number}", picture, caption, step)


def chosen(lines: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """Rollouts of the group whose rewards differ most: the best, the worst, then the others."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["uid"]].append(line)
    if not groups:
        return []
    ranked = [sorted(group, key=_score, reverse=True) for group in groups.values()]
    group = max(ranked, key=lambda group: _score(group[0]) - _score(group[-1]))
    return [group[0], *reversed(group[1:])][:count]


def _score(line: Mapping[str, Any]) -> float:
    return float(line["reward"].get("score", 0.0))
