"""Steps of a run: verl's metrics of a step, and the line that a user reads of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBER = re.compile(r"(.+):(?:np\.\w+\()?([-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|-?inf)\)?")

_TRAINING = (
    ("reward", "rollout/score/mean", ".3f"),
    ("accuracy", "rollout/acc/mean", ".3f"),
    ("calls", "tool/executed_per_rollout", ".2f"),
    ("frames", "frames/total/mean", ".1f"),
    ("flagged", "rollout/flagged", ".0f"),
)
_FINE_TUNING = (("loss", "train/loss", ".4f"), ("learning rate", "train/lr", ".1e"))
_VALIDATION = re.compile(r"val-core/(.+)/acc/mean@\d+|val/loss")


def metrics(text: str) -> dict[str, float]:
    """The numbers of verl's console logger: `name:value - name:value`."""
    found = {}
    for part in text.split(" - "):
        if number := _NUMBER.fullmatch(part):
            found[number[1]] = float(number[2])
    return found


def step_line(step: int, total: int | None, values: Mapping[str, float], seconds_left: float | None) -> str | None:
    """A step in one line; None where it has nothing to show.

    Args:
        values: metrics by verl's names.
    """
    parts = [f"{label} {values[name]:{form}}" for label, name, form in _TRAINING + _FINE_TUNING if name in values]
    for name in sorted(values):
        if found := _VALIDATION.fullmatch(name):
            label = "validation loss" if found[1] is None else f"held-out accuracy ({found[1]})"
            parts.append(f"{label} {values[name]:.3f}")
    if not parts:
        return None
    if (seconds := values.get("perf/time_per_step") or values.get("timing_s/step")) is not None:
        parts.append(f"{seconds:.0f} s")
    if seconds_left is not None and step != total:
        parts.append(f"{_duration(seconds_left)} left")
    return f"step {step}{'' if total is None else f'/{total}'}  " + ", ".join(parts)


def has_validation(values: Mapping[str, float]) -> bool:
    return any(map(_VALIDATION.fullmatch, values))


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes} min" if seconds >= 60 else f"{round(seconds)} s"
