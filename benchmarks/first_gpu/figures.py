"""Figures of the GRPO steps from verl's own log, each beside its plan where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.first_gpu.grpo import GrpoRun, memory_at
from verl_video_tools.core.errors import UsageError
from verl_video_tools.launch.plan import CONTEXT_BYTES
from verl_video_tools.records.report import LOG_NAMES, read_log

GiB, GB = 2**30, 1e9
GAP_BOUND = 0.02
"""Mean difference of probabilities that bfloat16 may make between engine and actor, as in tests/gpu/test_engine.py.

With `top_p` below 1 the engine's probabilities are those of the tokens that may be sampled, up to 1 - `top_p` more."""
NEAR = 4 / 3
"""A figure is near its plan where neither is more than this times the other."""
STAGES = {
    "timing_s/gen": "generation",
    "timing_s/old_log_prob": "old log-probabilities",
    "timing_s/ref": "reference log-probabilities",
    "timing_s/update_actor": "update",
    "timing_s/update_weights": "weight sync",
    "timing_s/step": "the step",
}
"""verl's timers."""


@dataclass(frozen=True)
class Figure:
    """A row of the page. `verdict` is given where there is no plan to compare with."""

    name: str
    unit: str
    measured: float
    planned: float | None = None
    verdict: str = ""

    @property
    def ratio(self) -> float | None:
        return self.measured / self.planned if self.planned else None

    @property
    def judgement(self) -> str:
        if self.verdict or self.ratio is None:
            return self.verdict
        if self.ratio > NEAR:
            return "above the plan"
        return "near the plan" if self.ratio >= 1 / NEAR else "below the plan"


def read_figures(run: GrpoRun, folder: Path, used_bytes: float) -> list[Figure]:
    """Of the last step, after the first has warmed up; the gap is the worst of all steps. Empty without a logged step.

    Args:
        folder: of the run, with verl's log.
        used_bytes: the most in use on a GPU, by all processes; 0 where it is not known.

    Raises:
        UsageError: verl's log cannot be read.
    """
    steps: dict[int, Mapping[str, float]] = {}
    for path in sorted(folder.glob(LOG_NAMES)):
        steps |= {step: values for step, values in read_log(path).items() if "timing_s/step" in values}
    if not steps:
        return []
    last = steps[max(steps)]
    found = [Figure("steps", "", len(steps))]
    found += gap_figures(steps, GAP_BOUND + 1 - run.top_p)
    found += memory_figures(run, last, used_bytes)
    return found + token_figures(last) + time_figures(last)


def gap_figures(steps: Mapping[int, Mapping[str, float]], mean_bound: float) -> list[Figure]:
    """Engine against actor. A gap that was not measured, verl's not-a-number, is beyond the bound."""
    found = []
    for kind, bound in (("mean", mean_bound), ("max", None)):
        name = f"training/rollout_probs_diff_{kind}"
        values = [step[name] for step in steps.values() if name in step]
        if not values:
            found.append(Figure(name, "probability", float("nan"), verdict="not logged"))
            continue
        within = all(value <= (bound or 1.0) for value in values)
        verdict = "" if bound is None else f"{'within' if within else 'BEYOND'} {bound:.2g}"
        worst = max(values, key=lambda value: (value != value, value))
        found.append(Figure(name, "probability", worst, verdict=verdict))
    return found


def memory_figures(run: GrpoRun, values: Mapping[str, float], used_bytes: float) -> list[Figure]:
    """Of the actor's process, as torch counts, and of a whole GPU. The plan is that of the longest rollout seen."""
    longest = int(values.get("prompt_length/max", 0) + values.get("response_length/max", 0))
    planned = memory_at(run, longest).total - CONTEXT_BYTES if run.plan and longest else None
    gpu = max(run.plan.engine.budget, planned or 0) + CONTEXT_BYTES if run.plan else None
    names = {"peak of the actor, reserved": "reserved", "peak of the actor, allocated": "allocated"}
    found = []
    for name, kind in names.items():
        value = values.get(f"actor/perf/max_memory_{kind}_gb")
        if value:  # 0 without a GPU
            found.append(Figure(name, "GB", value * GiB / GB, planned / GB if planned else None))
    if used_bytes:
        found.append(Figure("peak of a GPU, all processes", "GB", used_bytes / GB, gpu / GB if gpu else None))
    return found


def token_figures(values: Mapping[str, float]) -> list[Figure]:
    tokens = sum(values.get(f"{part}_length/mean", 0.0) for part in ("prompt", "response"))
    found = [Figure("tokens of a rollout, mean", "", tokens)]
    if (frames := values.get("frames/total/mean")) is not None:
        found.append(Figure("frames of a rollout, mean", "", frames))
    return found


def time_figures(values: Mapping[str, float]) -> list[Figure]:
    return [Figure(name, "s", values[key]) for key, name in STAGES.items() if key in values]


def read_or_tell(run: GrpoRun, folder: Path, used_bytes: float) -> tuple[list[Figure], str]:
    """The figures, and why there are none."""
    try:
        figures = read_figures(run, folder, used_bytes)
    except UsageError as error:
        return [], str(error)
    return figures, "" if figures else f"no step in {LOG_NAMES} of the run"
