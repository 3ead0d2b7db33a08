"""One seed of a claim: cold start, the paper's choice, the other choice, and what differs on held-out questions."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from examples.learning_curve.claims.behaviours import Mixture
from examples.learning_curve.claims.claim import Arm, Claim, Metric
from examples.learning_curve.held_out import Outcome, mean_gain, mean_of, read_outcomes
from examples.learning_curve.measured import kind_of
from examples.learning_curve.plans import Ablation
from examples.learning_curve.run import RESULTS, Learning
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import write_json, write_text
from verl_video_tools.data.export_rollouts import last_segment_iou
from verl_video_tools.data.parquet import write_table
from verl_video_tools.data.sft import write_sft_rows
from verl_video_tools.data.synthetic_rows import load_rows, make_row, question_from_row, questions_about
from verl_video_tools.methods import get_method
from verl_video_tools.records.records import read_records
from verl_video_tools.services.retrieval import local_from_fields
from verl_video_tools.synthetic.questions import Kind

RESULT = "claim_result.json"
_COLD_SEED = 2_000_000  # added to the seed of the cold start's questions, so that training asks others


class Trial(Learning):
    """The stages of a claim and seed in a folder of their own: `rl` is the paper's choice, `ablation` the other."""

    def __init__(self, name: str, claim: Claim, seed: int, out: Path) -> None:
        super().__init__(claim.method, seed, out, claim.plan, Ablation(claim.other.title, claim.other.fields))
        self.claim_name, self.claim = name, claim

    # ---------------------------------------------------------------------------------------------------------- stages

    def _claim_folder(self) -> None:
        path, own = self.out / "claim.json", {"name": self.claim_name, **self.claim.settings()}
        if path.exists() and json.loads(path.read_text()) != own:
            raise UsageError(f"{path}: the folder was begun with another claim; give another --out")
        super()._claim_folder()
        write_json(path, own)

    def make_data(self) -> None:
        super().make_data()
        if shares := self.claim.train_shares:
            write_table(pa.Table.from_pylist(_part(load_rows(self.train), shares, self.seed)), self.train)

    def make_cold_start(self) -> None:
        """What an expert writes that behaves as the claim says, on questions that training does not ask."""
        method = get_method(self.method, **self._fields(self.method))
        videos = {row["extra_info"]["video_path"]: question_from_row(row)[0] for row in load_rows(self.train)}
        rows = [
            make_row(spec, question, Path(path), number, "train", self.method)
            for path, spec in videos.items()
            for number, question in enumerate(
                questions_about(spec, self.plan.questions_per_video, _COLD_SEED + self.seed)
            )
            if question.kind in self.plan.kinds
        ]
        random.Random(self.seed).shuffle(rows)
        report = write_sft_rows(
            rows,
            Mixture(method, self.claim.cold, self.seed),
            self.out / "cold_start.parquet",
            method=method,
            keep_wrong=True,
            retriever=local_from_fields({"model": str(self.data / "clip")}) if self.method == "videobrain" else None,
        )
        self._say(f"the expert's rollouts: {report}")

    def reinforce(self) -> None:
        self._reinforce("rl", self.claim.paper, "trainer.val_before_train=True")

    def reinforce_otherwise(self, ablation: Ablation) -> None:
        self._reinforce("ablation", self.claim.other)

    def _reinforce(self, run: str, arm: Arm, *measuring: str) -> None:
        self._train(run, self.validation, *self._as_options(arm.fields), *arm.options, measuring=measuring)
        for number, metric in enumerate(self.claim.metrics):
            if metric.fields is not None and not self.measured(_view(run, number), 0).exists():
                options = [*self._as_options(metric.fields), *arm.options]
                self._measure(_view(run, number), self.out / run / "huggingface", self.validation, *options)

    def _fields(self, method: str) -> dict[str, Any]:
        own = read_assignments(list(self.claim.common)) if method == self.method else {}
        return super()._fields(method) | own

    def _own_options(self) -> list[str]:
        return [*super()._own_options(), *self._as_options(self.claim.common)]

    # ---------------------------------------------------------------------------------------------------------- result

    def report(self) -> None:
        """Also writes `claim_result.json`: what `results.json` holds, the claim's name, and its metrics."""
        super().report()
        metrics = [self._compare(number, metric) for number, metric in enumerate(self.claim.metrics)]
        results = json.loads((self.out / RESULTS).read_text())
        told = {"claim": self.claim_name, **results, "settings": self.claim.settings(), "metrics": metrics}
        write_text(self.out / RESULT, json.dumps(told, indent=1) + "\n")
        for metric in metrics:
            self._say(f"{metric['measure']} on {', '.join(metric['kinds'])}: {metric['difference']['mean']:+.3f}")

    def _compare(self, number: int, metric: Metric) -> dict[str, Any]:
        paper, other = (
            values(self.measured(*place), self.method, metric)
            for run in ("rl", "ablation")
            for place in [(run, self.plan.rl_steps) if metric.fields is None else (_view(run, number), 0)]
        )
        return {
            **asdict(metric),
            "paper": asdict(mean_of(paper, "score")),
            "other": asdict(mean_of(other, "score")),
            "difference": asdict(mean_gain(other, paper, "score")),
        }


def values(path: Path, method: str, metric: Metric) -> dict[int, Outcome]:
    """Held-out rollouts of the kinds that count, with the measure in the place of the reward.

    Raises:
        UsageError: as `read_outcomes`.
    """
    outcomes = read_outcomes(path, method)
    lines = {int(line["extra_info"]["index"]): line for line in read_records(path) if line["agent_name"] == method}
    return {
        index: replace(outcome, score=metric.of(outcome, _iou(outcome, lines[index]), _tools(lines[index])))
        for index, outcome in outcomes.items()
        if kind_of(outcome.row) in metric.kinds
    }


def _iou(outcome: Outcome, line: Mapping[str, Any]) -> float:
    return last_segment_iou(line["trajectory"], outcome.row.get("video_segment"))


def _tools(line: Mapping[str, Any]) -> set[str]:
    return {call.name for call in line["trajectory"].executed_calls()}


def _view(run: str, number: int) -> str:
    """Folder of a measurement of its own."""
    return f"{run}_metric_{number}"


def _part(rows: list[dict[str, Any]], shares: Mapping[Kind, float], seed: int) -> list[dict[str, Any]]:
    """Rows in their order, of each kind the share that is to be kept; 1 where none is given."""
    kinds = [question_from_row(row)[1].kind for row in rows]
    left = {kind: round(count * shares.get(kind, 1.0)) for kind, count in Counter(kinds).items()}
    kept = set()
    for number in random.Random(seed).sample(range(len(rows)), len(rows)):
        if left[kinds[number]] > 0:
            left[kinds[number]] -= 1
            kept.add(number)
    return [row for number, row in enumerate(rows) if number in kept]
