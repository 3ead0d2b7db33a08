"""One Markdown page of all that was found, to paste into an issue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from benchmarks.first_gpu.figures import Figure
from benchmarks.first_gpu.grpo import NUM_STEPS, GrpoRun
from benchmarks.first_gpu.machine import Machine
from benchmarks.first_gpu.stages import Outcome

TAIL_LINES = 25


def render(
    machine: Machine, run: GrpoRun, outcomes: Sequence[Outcome], figures: Sequence[Figure], why_none: str
) -> str:
    """The page; `why_none` is told where there are no figures."""
    failed = [outcome for outcome in outcomes if outcome.status != "ok"]
    verdict = f"{len(outcomes) - len(failed)} of {len(outcomes)} steps ended well"
    parts = [
        "# First hour on a GPU",
        f"{verdict}. {run.method}, {run.model}, {run.num_gpus} GPU(s), {trained(run)}.",
        "## Steps",
        table(("step", "verdict", "seconds", "limit", "last line"), map(outcome_row, outcomes)),
        f"## {NUM_STEPS} GRPO steps, the last one against the plan",
        figure_table(figures) if figures else f"No figures: {why_none}.",
        plan_note(run),
        *actor_parts(outcomes),
        *doctor_findings(outcomes),
        "## Machine",
        table(("", ""), machine.facts.items()),
        *(section for outcome in failed for section in log_tail(outcome)),
    ]
    return "\n\n".join(parts) + "\n"


def trained(run: GrpoRun) -> str:
    return f"LoRA of rank {run.lora_rank}" if run.lora_rank else "all weights"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines)


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

    return table(("", "measured", "planned", "measured/planned", "verdict"), map(row, figures))


def plan_note(run: GrpoRun) -> str:
    if run.plan is None:
        return "No plan: there is no GPU, or `vvt estimate` does not know this model."
    return f"Planned for {run.plan.cluster.gpu.name} by `vvt estimate`: memory at the longest rollout seen."


def actor_parts(outcomes: Sequence[Outcome]) -> list[str]:
    """The table that `benchmarks.gpu_model` printed."""
    for outcome in outcomes:
        lines = [line for line in outcome.output.splitlines() if line.startswith("|")]
        if outcome.stage.name == "actor" and lines:
            return ["## Parts of the actor, against the plan", "\n".join(lines)]
    return []


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
        return ["## Findings of the doctor", table(("", "", "", "fix"), rows)] if rows else []
    return []


def log_tail(outcome: Outcome) -> list[str]:
    lines = outcome.tail.splitlines()[-TAIL_LINES:]
    text = "\n".join(line.replace("```", "'''") for line in lines)
    return [f"## End of {outcome.log.name}", f"```\n{text}\n```"]
