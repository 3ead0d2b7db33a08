"""Write the tables of docs/presets.md from the recipes and the planner: python -m docs.make_presets.

Needs verl, which composes the recipes' configurations. What stands between ``<!-- NAME -->`` and ``<!-- end -->`` is
replaced; the rest of the page is written by hand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.recipes.presets import METHODS, MODELS, NODES, PUBLISHED, Planner, models_of
from verl_video_tools.planner.constants import GiB
from verl_video_tools.planner.plan import Plan

PAGE = Path(__file__).parent / "presets.md"


def page(text: str, planner: Planner) -> str:
    """The page with its tables as recipes and planner have them now."""
    for name, lines in (("presets", _table(planner)), ("small", _small(planner))):
        begin, end = f"<!-- {name} -->\n", "\n<!-- end -->"
        assert text.count(begin) == 1, f"docs/presets.md has {text.count(begin)} places for {name}"
        before, _, rest = text.partition(begin)
        made = "\n".join(lines)
        text = f"{before}{begin}\n{made}\n{end}{rest.partition(end)[2]}"
    return text


def _table(planner: Planner) -> Iterator[str]:
    yield (
        "| method | `PRESET` | GPUs | questions x rollouts | GiB of a GPU: update | engine | cold start "
        "| GiB of a node | seconds per step |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for method in METHODS:
        for machine in (*NODES, PUBLISHED):
            presets = [PUBLISHED] if machine == PUBLISHED else [f"{model}_{machine}" for model in MODELS]
            runs = [(preset, model) for preset in presets for model in models_of(method, preset)]
            plans = [planner.plan(method, *run) for run in runs]
            cold = (
                [] if _has_no_cold_start(method, machine) else [planner.cold_start(method, *run).total for run in runs]
            )
            yield (
                f"| `{method}` | `{machine}` | {plans[0].cluster.num_gpus} "
                f"| {plans[0].workload.groups} x {plans[0].workload.rollouts} "
                f"| {_each(plans, _update)} | {_each(plans, _engine)} | {_each(cold, _gibibytes)} "
                f"| {_each(plans, _host)} | {_each(plans, _seconds)} |"
            )


def _small(planner: Planner) -> Iterator[str]:
    yield "| method | GiB, 3B with LoRA |"
    yield "|---|---|"
    for method in METHODS:
        yield f"| `{method}` | {_update(planner.on_one_card(method)):.0f} |"


def _has_no_cold_start(method: str, machine: str) -> bool:
    """In the paper."""
    return method == "framemind" and machine == PUBLISHED


def _gibibytes(num_bytes: float) -> float:
    return num_bytes / GiB


def _update(plan: Plan) -> float:
    return _gibibytes(plan.actor.total)


def _engine(plan: Plan) -> float:
    return _gibibytes(plan.engine.budget)


def _host(plan: Plan) -> float:
    return _gibibytes(plan.host.total)


def _seconds(plan: Plan) -> float:
    return plan.step_seconds


def _each(items: Sequence[Any], figure: Callable[[Any], float]) -> str:
    """Rounded, once where all are alike."""
    texts = [f"{figure(item):.0f}" for item in items]
    return " / ".join(texts if len(set(texts)) > 1 else texts[:1])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = page(PAGE.read_text(encoding="utf-8"), Planner.in_folder(Path(folder)))
    PAGE.write_text(made, encoding="utf-8")
