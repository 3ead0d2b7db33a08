"""One Markdown page of all that was found, to paste into an issue."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from benchmarks.first_gpu.figures import Figure
from benchmarks.first_gpu.grpo import NUM_STEPS, GrpoRun
from benchmarks.first_gpu.machine import Machine
from benchmarks.first_gpu.stages import Outcome
from benchmarks.gpu_model.meter import markdown

TAIL_LINES = 25


def render(
    machine: Machine,
    run: GrpoRun | None,
    outcomes: Sequence[Outcome],
    waiting: Sequence[str],
    sections: Sequence[str],
) -> str:
    """The page.

    Args:
        waiting: parts that need a GPU, where there is none.
        sections: about the GRPO steps.
    """
    failed = [outcome for outcome in outcomes if outcome.status != "ok"]
    verdict = f"{len(outcomes) - len(failed)} of {len(outcomes)} parts ended well"
    if waiting:
        verdict += f", {len(waiting)} wait for a GPU"
    if run:
        verdict += f". {run.method}, {run.model}, {run.num_gpus} GPU(s), {trained(run)}"
    rows = [*map(outcome_row, outcomes), *((name, "waiting for a GPU", "", "", "") for name in waiting)]
    parts = [
        "# First hour on a GPU",
        f"{verdict}.",
        "## Parts",
        markdown(("part", "verdict", "seconds", "limit", "last line"), rows),
        *sections,
        *(section for outcome in outcomes for section in measured_sections(outcome)),
        *doctor_findings(outcomes),
        "## Machine",
        markdown(("", ""), machine.facts.items()),
        *(section for outcome in failed for section in log_tail(outcome)),
    ]
    return "\n\n".join(parts) + "\n"


def grpo_steps(run: GrpoRun, figures: Sequence[Figure], why_none: str) -> list[str]:
    """Sections about the GRPO steps; `why_none` says why there are no figures."""
    steps = figure_table(figures) if figures else f"No figures: {why_none}."
    return [f"## {NUM_STEPS} GRPO steps, the last one against the plan", steps, plan_note(run)]


def trained(run: GrpoRun) -> str:
    return f"LoRA of rank {run.lora_rank}" if run.lora_rank else "all weights"


def outcome_row(outcome: Outcome) -> tuple[str, ...]:
    verdict = outcome.status if outcome.exit_code in (0, None) else f"{outcome.status}, exit code {outcome.exit_code}"
    lines = outcome.output.strip().splitlines() or [""]
    return (
        outcome.stage.name,
        verdict,
        f"{outcome.seconds:.0f}",
        f"{outcome.stage.limit_seconds:.0f}",
        lines[-1][:160],
    )


def figure_table(figures: Sequence[Figure]) -> str:
    def row(figure: Figure) -> tuple[str, ...]:
        planned, ratio = ("" if value is None else f"{value:.3g}" for value in (figure.planned, figure.ratio))
        return (figure.name, f"{figure.measured:.4g} {figure.unit}".strip(), planned, ratio, figure.judgement)

    return markdown(("", "measured", "planned", "measured/planned", "verdict"), map(row, figures))


def plan_note(run: GrpoRun) -> str:
    if run.plan is None:
        return "No plan: `vvt estimate` does not know this model."
    return f"Planned for {run.plan.cluster.gpu.name} by `vvt estimate`: memory at the longest rollout seen."


def measured_sections(outcome: Outcome) -> list[str]:
    """What a part printed by `meter.section`: headings and tables among the rest of its output."""
    lines = [line for line in outcome.output.splitlines() if not line or line.startswith(("## ", "|"))]
    text = "\n".join(lines)
    return [re.sub(r"\n{3,}", "\n\n", text).strip()] if "## " in text else []


def doctor_findings(outcomes: Sequence[Outcome]) -> list[str]:
    """What the doctor found missing or wrong, from its JSON."""
    for outcome in outcomes:
        if outcome.stage.name != "doctor":
            continue
        try:
            checks = json.loads(outcome.output[outcome.output.index("{") :])["checks"]
        except (ValueError, KeyError, TypeError):
            return []
        bad = [check for check in checks if check["status"] in ("failed", "warning")]
        rows = [(check["name"], check["status"], check.get("detail", ""), check["fix"]) for check in bad]
        return ["## Findings of the doctor", markdown(("", "", "", "fix"), rows)] if rows else []
    return []


def log_tail(outcome: Outcome) -> list[str]:
    lines = outcome.tail.splitlines()[-TAIL_LINES:]
    text = "\n".join(line.replace("```", "'''") for line in lines)
    return [f"## End of {outcome.log.name}", f"```\n{text}\n```"]
