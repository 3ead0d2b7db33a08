"""When and how a model looks again: call rates by tool and class of question, and the frame rates that it chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from verl_video_tools.core.types import Trajectory

_RATES = (0, 1, 2, 4, 8)
"""Bounds of the classes of frame rates, in frames per second: those of VideoZoomer's table 10."""


def call_figures(trajectories: Sequence[Trajectory], classes: Sequence[str | None]) -> dict[str, Any]:
    """Figures of rollouts by their executed calls; empty where there are none.

    - `share`: of rollouts that looked again.
    - `by_tool`: by name, the same of this tool's calls alone.
    - `by_class`: by class of the question (`extra_info.classification`, VideoBrain's), where rows have one.
    - `chosen_fps`: shares of the calls that name a frame rate (`fps`), by class of rate.

    Args:
        classes: of the question of each rollout; None where the row has none.
    """
    tools = [[call.name for call in trajectory.executed_calls()] for trajectory in trajectories]
    if not any(tools):
        return {}
    by_class: dict[str, list[bool]] = {}
    for names, of_class in zip(tools, classes, strict=True):
        if of_class is not None:
            by_class.setdefault(of_class, []).append(bool(names))
    used = {name: [name in names for names in tools] for name in sorted({name for names in tools for name in names})}
    fps = [
        _fps_class(rate)
        for trajectory in trajectories
        for call in trajectory.executed_calls()
        if isinstance(rate := call.arguments.get("fps"), int | float) and rate > 0
    ]
    counts = Counter(fps)
    return {
        "share": _share([bool(names) for names in tools]),
        "by_tool": {name: _share(each) for name, each in used.items()},
        **({"by_class": {name: _share(by_class[name]) for name in sorted(by_class)}} if by_class else {}),
        **({"chosen_fps": {name: counts[name] / len(fps) for name in map(_fps_class, (1, 2, 4, 8, 9))}} if fps else {}),
    }


def _fps_class(rate: float) -> str:
    above = max(bound for bound in _RATES if bound < rate)
    upper = next((bound for bound in _RATES if bound >= rate), None)
    return f"({above}, {'inf' if upper is None else upper}]"


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)
