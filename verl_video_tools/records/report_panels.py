"""What a report shows: which metrics stand together in a panel. Pure functions; `report_figures` draws panels."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from verl_video_tools.core.errors import CallErrorCode
from verl_video_tools.core.types import StopReason
from verl_video_tools.records.metrics import reward_components
from verl_video_tools.records.report_curves import Run, Steps, methods_in, metric_names

_MAX_NAMED = 6
"""Curves of a panel whose names may come from a policy; the rest of them is summed up."""
_OTHERS = "others"
_PARTS = "Parts of the reward: {}"
_VALIDATION = re.compile(r"val-core/(.+)/acc/mean@\d+", re.DOTALL)
_LOGGED = {
    "Loss of the policy": {"policy gradient": "actor/pg_loss"},
    "KL": {"to the reference": "actor/kl_loss", "in the update": "actor/ppo_kl"},
    "Entropy": {"entropy": "actor/entropy"},
    "Norm of the gradient": {"norm": "actor/grad_norm"},
    "Seconds per step": {"whole step": "timing_s/step", "rollouts": "timing_s/gen", "update": "timing_s/update_actor"},
    "Probabilities: engine against actor": {"mean": "training/rollout_probs_diff_mean"},
}
"""Metrics of verl 0.9.1 by panel and label."""


@dataclass(frozen=True)
class Curve:
    """Values of one metric at the steps that have it."""

    label: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """Curves with one y axis.

    Attributes:
        curves: for each run, of which some may have none.
        share: values are shares, shown in per cent.
        whole: shares that add up to 1, drawn on top of each other; such a panel is of one run.
        from_zero: the axis begins at 0.
    """

    title: str
    curves: Sequence[Sequence[Curve]]
    share: bool = False
    whole: bool = False
    from_zero: bool = False

    def labels(self) -> list[str]:
        return list(dict.fromkeys(curve.label for curves in self.curves for curve in curves))


def main_panels(runs: Sequence[Run]) -> list[Panel]:
    """The six panels that stand for a run: reward and its parts, accuracy, calls, frames, stop reasons."""
    frames = {"all": "frames/total/mean"}
    if len(runs) == 1:
        frames |= {"first look": "frames/initial/mean", "by calls": "frames/tool/mean"}
    return [
        Panel("Reward", [_reward(run) for run in runs]),
        _parts_of_reward(runs),
        Panel("Accuracy", [_accuracy(run) for run in runs], share=True, from_zero=True),
        Panel("Executed calls per rollout", _of_training(runs, {"calls": "tool/executed_per_rollout"}), from_zero=True),
        Panel("Frames per rollout", _of_training(runs, frames), from_zero=True),
        _stops(runs[0]) if len(runs) == 1 else _answers(runs),
    ]


def more_panels(runs: Sequence[Run]) -> list[Panel]:
    """All others for which there is a value."""
    panels = [*_method_panels(runs)]
    panels += [
        Panel(
            "Calls per rollout, by tool",
            [_named(run.training, _tool_of) for run in runs],
            from_zero=True,
        ),
        Panel(
            "Calls not executed per rollout, by reason",
            [_named(run.training, _reason_of) for run in runs],
            from_zero=True,
        ),
    ]
    if len(runs) > 1:
        parts = {"first look": "frames/initial/mean", "by calls": "frames/tool/mean"}
        panels.append(Panel("Frames per rollout, by origin", _of_training(runs, parts), from_zero=True))
        panels += [_stops(run, f": {run.name}") for run in runs]
    panels += [
        Panel(
            "Groups with unequal rewards",
            _of_training(runs, {"groups": "group/unequal_reward_rate"}),
            share=True,
            from_zero=True,
        ),
        Panel("Generated tokens per rollout", _of_training(runs, {"tokens": "tokens/generated/mean"}), from_zero=True),
        Panel("Flagged rollouts of a step", _of_training(runs, {"rollouts": "rollout/flagged"}), from_zero=True),
    ]
    panels += [Panel(title, [_curves(run.log, names) for run in runs]) for title, names in _LOGGED.items()]
    shown = {panel.title for panel in main_panels(runs)}
    return [panel for panel in panels if any(panel.curves) and panel.title not in shown]


def _parts_of_reward(runs: Sequence[Run]) -> Panel:
    """Components of the only method's reward, or those that all methods have; by method where a run trains several."""
    trained = [methods_in(run.training) for run in runs]
    methods = sorted({method for own in trained for method in own})
    if any(len(own) > 1 for own in trained):
        return _by_method(runs, "Reward", "score")
    parts = [_components(method, runs) for method in methods]
    common = [part for part in dict.fromkeys(chain(*parts)) if all(part in own for own in parts)]
    curves = [
        _curves(run.training, {part: f"video_tools/{method}/{part}/mean" for method in own for part in common})
        for run, own in zip(runs, trained, strict=True)
    ]
    return Panel(_PARTS.format(methods[0]) if len(methods) == 1 else "Parts of the reward", curves)


def _components(method: str, runs: Sequence[Run]) -> tuple[str, ...]:
    """Reward components of a method: those of its defaults, then others that the runs have recorded."""
    pattern = re.compile(rf"video_tools/{re.escape(method)}/(?!(?:score|acc)/)([^/]+)/mean")
    names = (name for run in runs for steps in (run.training, run.validation) for name in metric_names(steps))
    recorded = (match[1] for name in names if (match := pattern.fullmatch(name)))
    return tuple(dict.fromkeys((*reward_components(method), *recorded)))


def _by_method(runs: Sequence[Run], title: str, key: str, share: bool = False) -> Panel:
    methods = sorted({method for run in runs for method in methods_in(run.training)})
    names = {method: f"video_tools/{method}/{key}/mean" for method in methods}
    return Panel(f"{title} by method", _of_training(runs, names), share=share, from_zero=share)


def _method_panels(runs: Sequence[Run]) -> Iterable[Panel]:
    """Per method its reward's components, and, where a run mixes methods, reward and accuracy by method."""
    methods = sorted({method for run in runs for method in run.methods()})
    if any(len(methods_in(run.training)) > 1 for run in runs):
        yield _by_method(runs, "Reward", "score")
        yield _by_method(runs, "Accuracy", "acc", share=True)
    # Those that were only measured have curves of their own beside the accuracy.
    if any(len(methods_in(run.validation)) - len(run.only_measured()) > 1 for run in runs):
        curves = [
            _curves(
                run.validation, {_marked(method, run, method): f"video_tools/{method}/acc/mean" for method in methods}
            )
            for run in runs
        ]
        yield Panel("Held-out accuracy by method", curves, share=True, from_zero=True)
    for method in methods:
        names = {component: f"video_tools/{method}/{component}/mean" for component in _components(method, runs)}
        yield Panel(_PARTS.format(method), _of_training(runs, names))


def _stops(run: Run, of_run: str = "") -> Panel:
    names = {reason.replace("_", " "): f"stop/{reason}" for reason in StopReason}
    ends = [curve for curve in _curves(run.training, names) if any(curve.values)]
    return Panel(f"Why rollouts ended{of_run}", [ends], share=True, whole=True)


def _answers(runs: Sequence[Run]) -> Panel:
    """What can be overlaid of the stop reasons."""
    names = {"answer": f"stop/{StopReason.ANSWER}"}
    return Panel("Rollouts that ended with an answer", _of_training(runs, names), share=True, from_zero=True)


def _reward(run: Run) -> list[Curve]:
    """Not of methods that are only measured: their rewards are of another scale."""
    name = "rollout/score/mean"
    return _curves(run.training, {"training": name}) + _curves(run.validation, {_marked("held-out", run): name})


def _accuracy(run: Run) -> list[Curve]:
    training = _curves(run.training, {"training": "rollout/acc/mean"})
    if run.validation:
        names = {_marked("held-out", run): "rollout/acc/mean"}
        for method in run.only_measured():
            names[_marked(f"held-out {method}", run, method)] = f"video_tools/{method}/acc/mean"
        return training + _curves(run.validation, names)
    logged = {match[1]: name for name in metric_names(run.log) if (match := _VALIDATION.fullmatch(name))}
    labels = {"held-out" if len(logged) == 1 else f"held-out {source}": name for source, name in logged.items()}
    return training + _curves(run.log, labels)


def _marked(label: str, run: Run, method: str | None = None) -> str:
    """A label of held-out rollouts, with what rows these are on where rounds have measured different ones."""
    return label + run.rounds.marks.get(method, "")


def _of_training(runs: Sequence[Run], names: Mapping[str, str]) -> list[list[Curve]]:
    return [_curves(run.training, names) for run in runs]


def _curves(steps: Steps, names: Mapping[str, str]) -> list[Curve]:
    """A curve for each label whose metric has a finite value."""
    curves = []
    for label, name in names.items():
        points = {step: metrics[name] for step, metrics in steps.items() if math.isfinite(metrics.get(name, math.nan))}
        if points:
            curves.append(Curve(label, tuple(points), tuple(points.values())))
    return curves


def _tool_of(metric: str) -> str | None:
    match = re.fullmatch(r"tool/(.*)/calls_per_rollout", metric, re.DOTALL)
    return match and match[1]


def _reason_of(metric: str) -> str | None:
    code = metric.removeprefix("tool/error/")
    return code.replace("_", " ") if code != metric and code in set(CallErrorCode) else None


def _named(steps: Steps, name_of: Callable[[str], str | None]) -> list[Curve]:
    """Rates by name, the most frequent ones apart; a step that lacks one had none."""
    totals: dict[str, float] = defaultdict(float)
    for metrics in steps.values():
        for metric, value in metrics.items():
            if (name := name_of(metric)) is not None:
                totals[name] += value
    apart = sorted(totals, key=lambda name: -totals[name])[:_MAX_NAMED]
    rates: dict[str, list[float]] = {name: [0.0] * len(steps) for name in [*apart, _OTHERS]}
    for position, metrics in enumerate(steps.values()):
        for metric, value in metrics.items():
            if (name := name_of(metric)) is not None:
                rates[name if name in apart else _OTHERS][position] += value
    return [Curve(name, tuple(steps), tuple(values)) for name, values in rates.items() if any(values)]
