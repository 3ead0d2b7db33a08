"""What a run's rollouts cost: tokens that the policy wrote, and tokens of the frames that it was shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.evaluation.items import visual_tokens
from verl_video_tools.records.records import read_records, records_folder, step_files, step_of
from verl_video_tools.records.report import LOG_NAMES, read_log

DROPPED_GROUPS = ("training/filter_groups/evicted_samples", "training/filter_groups/discarded_surplus_samples")
"""verl's metrics of a step: groups whose rollouts were made, and left out by dynamic sampling."""


@dataclass(frozen=True)
class Tokens:
    """Counts of tokens, or means of counts.

    Attributes:
        generated: written by the policy.
        visual: of the frames shown, the first ones and those of calls; a frame that is shown again counts again.
    """

    generated: float = 0
    visual: float = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.generated + other.generated, self.visual + other.visual)

    def __mul__(self, factor: float) -> Tokens:
        return Tokens(self.generated * factor, self.visual * factor)


def tokens_of(line: Mapping[str, Any], factor: int) -> Tokens:
    """Of a recorded line, as `records.records.read_records` gives it.

    Raises:
        UsageError: the line has no count of generated tokens.
        ValueError: see `visual_tokens`.
    """
    generated = line.get("num_generated_tokens")
    if generated is None:
        raise UsageError(
            f"step {line.get('step')}: a rollout of {line.get('agent_name')!r} without num_generated_tokens"
        )
    sampled = line.get("num_sampled_tokens")  # these include a verification turn, which is not trained on
    return Tokens(generated if sampled is None else sampled, visual_tokens(line["trajectory"], factor))


def training_tokens(run: Path, factor: int) -> dict[int, Tokens]:
    """Tokens of training from its first step up to each, by step; 0 for step 0.

    Records hold the rollouts that were trained on. Groups that dynamic sampling left out are counted by verl's log, and
    taken to have cost as much each as those of their step.

    Args:
        run: folder of the run.

    Raises:
        UsageError: a file cannot be read, or a step is missing, so that its cost is not known.
        ValueError: see `visual_tokens`.
    """
    dropped: dict[int, float] = {}
    for path in sorted(run.glob(LOG_NAMES)):
        for step, metrics in read_log(path).items():
            if "rollout/count" in metrics:  # a step that was trained again replaces the former
                dropped[step] = sum(metrics.get(name, 0.0) for name in DROPPED_GROUPS)
    total = Tokens()
    totals = {0: total}
    for number, path in enumerate(step_files(records_folder(run)), start=1):
        lines = list(read_records(path))
        step = step_of(path)
        if step != number or not lines:
            raise UsageError(f"{path}: the records of step {number} are missing, so the run's tokens are not known")
        num_groups = len({line["uid"] for line in lines})
        own = sum((tokens_of(line, factor) for line in lines), Tokens())
        total = total + own * (1 + dropped.get(step, 0.0) / num_groups)
        totals[step] = total
    return totals
