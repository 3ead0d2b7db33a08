"""What a run of `run.py` measured, as numbers for its `results.json`: accuracy of each policy, and accuracy by cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from examples.learning_curve.held_out import Outcome, mean_of, read_outcomes
from examples.learning_curve.token_costs import Tokens, tokens_of, training_tokens
from verl_video_tools.data.synthetic_rows import question_from_row
from verl_video_tools.records.records import read_records, records_folder, step_files

Outcomes = Mapping[int, Outcome]
"""Of one policy, by index of the question's row."""


def by_kind(outcomes: Outcomes) -> dict[str, dict[int, Outcome]]:
    kinds: dict[str, dict[int, Outcome]] = {}
    for index, outcome in outcomes.items():
        kinds.setdefault(kind_of(outcome.row), {})[index] = outcome
    return dict(sorted(kinds.items()))


def kind_of(extra_info: Mapping[str, Any]) -> str:
    _, question = question_from_row({"extra_info": extra_info})
    return question.kind


def hard(outcomes: Outcomes) -> dict[int, Outcome]:
    """The questions that the initial frames do not answer."""
    return {index: outcome for index, outcome in outcomes.items() if kind_of(outcome.row) != "direct"}


def looked(outcomes: Outcomes) -> dict[int, Outcome]:
    return {index: outcome for index, outcome in outcomes.items() if outcome.seconds_per_look is not None}


def accuracy_of(outcomes: Outcomes) -> dict[str, Any]:
    """Shares of right answers and numbers of calls, by kind of question."""
    kinds = by_kind(outcomes)
    return {
        "needs another look": asdict(mean_of(hard(outcomes))),
        "all questions": asdict(mean_of(outcomes)),
        "seconds per look by kind": {
            kind: mean_of(seen, "seconds_per_look").mean for kind, members in kinds.items() if (seen := looked(members))
        },
        "by kind": {kind: mean_of(members).mean for kind, members in kinds.items()},
        "calls by kind": {kind: mean_of(members, "executed_calls").mean for kind, members in kinds.items()},
    }


def interim_first(rows: Sequence[dict[str, Any]], num_questions: int) -> list[dict[str, Any]]:
    """The rows, first of them those that are also measured in the course of training.

    These are of so many videos a question each that needs another look, and of all such kinds in turn.
    """
    by_video: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if kind_of(row["extra_info"]) != "direct":
            by_video.setdefault(row["extra_info"]["video_path"], []).append(row)
    kinds = sorted({kind_of(row["extra_info"]) for members in by_video.values() for row in members})
    first = []
    for number, members in enumerate([*by_video.values()][:num_questions]):
        wanted = kinds[number % len(kinds)]
        first.append(next((row for row in members if kind_of(row["extra_info"]) == wanted), members[0]))
    taken = {row["extra_info"]["index"] for row in first}
    return [*first, *(row for row in rows if row["extra_info"]["index"] not in taken)]


def pixels_per_token(model: Path) -> int:
    """Side of the square of pixels that is one token, from a model's `config.json`."""
    vision = json.loads((model / "config.json").read_text())["vision_config"]
    return int(vision["patch_size"]) * int(vision["spatial_merge_size"])


def cost_curve(run: Path, method: str, factor: int) -> dict[str, Any]:
    """Accuracy at each measurement of a training run, beside what training had cost by then.

    All measurements are of the same questions: those that need another look and that each of them asked.

    Args:
        run: folder of the run.
        factor: see `pixels_per_token`.

    Returns:
        `questions`, how many; `measurements`, each with `step`, tokens of training up to it (`generated_tokens`,
        `visual_tokens`) and `accuracy` with its interval; `per question`, mean tokens of the last policy's rollouts on
        all questions that need another look.

    Raises:
        UsageError: records cannot be read, or one of a step is missing.
        ValueError: a frame is not made of whole tokens.
    """
    totals = training_tokens(run, factor)
    files = {int(path.stem.rpartition("_")[2]): path for path in step_files(records_folder(run), validation=True)}
    outcomes = {step: hard(read_outcomes(path, method)) for step, path in files.items() if step in totals}
    last = max(outcomes)
    common = frozenset.intersection(*(frozenset(each) for each in outcomes.values()))
    answered = [line for line in read_records(files[last]) if line["agent_name"] == method]
    costs = [tokens_of(line, factor) for line in answered if int(line["extra_info"]["index"]) in outcomes[last]]
    mean = sum(costs, Tokens()) * (1 / len(costs))
    return {
        "questions": len(common),
        "measurements": [
            {
                "step": step,
                **_named(totals[step]),
                "accuracy": asdict(mean_of({index: each[index] for index in sorted(common)})),
            }
            for step, each in sorted(outcomes.items())
        ],
        "per question": _named(mean),
    }


def rollout_counts(run: Path) -> dict[str, int]:
    """`rollouts` that a run has recorded in training, and how many of them are `flagged`.

    Raises:
        UsageError: records cannot be read.
    """
    flags = [bool(line["trajectory"].flags) for line in read_records(records_folder(run))]
    return {"rollouts": len(flags), "flagged": sum(flags)}


def _named(tokens: Tokens) -> dict[str, float]:
    return {"generated_tokens": tokens.generated, "visual_tokens": tokens.visual}
