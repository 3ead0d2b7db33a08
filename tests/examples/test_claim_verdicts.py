"""Claims of the papers: the rule and its power, and the report that applies it to results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.learning_curve.claims import learning_runs, power, report
from examples.learning_curve.claims.claim import CLAIMS
from examples.learning_curve.claims.verdict import decide, over_seeds
from examples.learning_curve.plans import PLANS
from examples.learning_curve.report import RFT_LESS_RL, TRAINING
from verl_video_tools.core.errors import UsageError

# ------------------------------------------------------------------------------------------------------------- the rule


@pytest.mark.parametrize("num_seeds", [2, 3, 5, 10])
def test_the_interval_over_seeds_holds_the_truth_as_often_as_it_says(num_seeds: int) -> None:
    drawn = np.random.default_rng(1).normal(0.3, 0.08, (2000, num_seeds))
    intervals = [over_seeds(list(row)) for row in drawn]
    held = np.mean([each.low <= 0.3 <= each.high for each in intervals])
    assert held == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.4, 0.42, 0.38], "supports"),
        ([0.01, -0.02, 0.0], "contradicts"),
        ([-0.4, -0.42, -0.38], "contradicts"),
        ([0.11, 0.1, 0.09], "contradicts"),  # an effect, but below the least that bears the claim out
        ([0.5, 0.1, 0.3], "undecided"),
        ([0.4], "undecided"),
    ],
)
def test_the_rule(differences: list[float], verdict: str) -> None:
    assert decide(differences, 0.2) == verdict


def test_no_harm_is_a_claim_of_its_own() -> None:
    assert decide([0.01, -0.01, 0.0], -0.02, bound=-0.05) == "supports"
    assert decide([-0.10, -0.11, -0.09], -0.02, bound=-0.05) == "contradicts"
    assert decide([0.01, -0.05, 0.03], -0.02, bound=-0.05) == "undecided"


@pytest.mark.parametrize("count", [0, 11])
def test_an_interval_needs_seeds(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 10 seeds"):
        over_seeds([0.1] * count)


@pytest.mark.long  # half a minute of simulation; claims and their seeds were fixed before the runs
@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_has_the_seeds_that_power_asks_for(name: str) -> None:
    claim = CLAIMS[name]
    assert 0 < claim.least < claim.effect
    assert claim.seeds == max(3, power.seeds_needed(claim.effect, claim.least) or 0)
    assert power.chances(0.0, claim.least, claim.seeds)["supports"] < 0.025


def test_power_rises_with_seeds_and_with_the_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "_REPETITIONS", 300)
    by_seeds = [power.chances(0.2, 0.1, count)["supports"] for count in (2, 4, 6, 8)]
    by_effect = [power.chances(effect, 0.1, 4)["supports"] for effect in (0.1, 0.2, 0.3, 0.4)]
    assert by_seeds == sorted(by_seeds) and by_effect == sorted(by_effect)
    assert power.chances(0.2, 0.1, 3, spread=1e-6) == {"supports": 1.0, "contradicts": 0.0, "undecided": 0.0}
    assert power.seeds_needed(0.01, 0.005) is None


# ---------------------------------------------------------------------------------------------------------- the report


def written(folder: Path, claim: str, seed: int, differences: Mapping[str, float]) -> Path:
    path = folder / f"{claim}_{seed}.json"
    metrics = [
        {
            "measure": measure,
            "kinds": ["at_time"],
            "fields": None,
            "paper": {"mean": 0.5 + difference},
            "other": {"mean": 0.5},
            "difference": {"mean": difference},
        }
        for measure, difference in differences.items()
    ]
    counts = {"rl": {"rollouts": 200, "flagged": seed}, "ablation": {"rollouts": 100, "flagged": 2 * seed}}
    told = {"claim": claim, "seed": seed, "metrics": metrics, TRAINING: counts}
    if claim in CLAIMS:
        told["settings"] = CLAIMS[claim].settings()
    path.write_text(json.dumps(told))
    return path


def loaded(paths: Sequence[Path]) -> dict[str, Any]:
    return {str(path): json.loads(path.read_text()) for path in paths}


def test_a_report_decides_by_the_first_metric(tmp_path: Path) -> None:
    paths = [written(tmp_path, "framethinker_bonus", s, {"iou": 0.3 + s / 100, "accuracy": 0.0}) for s in range(3)]
    paths += [written(tmp_path, "videozoomer_bonus", s, {"called": 0.01 * s}) for s in range(3)]
    paths += [written(tmp_path, "videobrain_behavior", s, {"answered_at_once": 0.9}) for s in (1, 2)]
    lines = report.table(report.read(loaded(paths))).splitlines()[2:]
    assert lines[0].startswith(
        "| `framethinker_bonus` | supports | iou, `at_time` | 3 | 81.0 | 50.0 | +31.0 (+28.5 to "
    )
    assert lines[0].endswith("+33.5) | 4.0 |")
    assert lines[1] == "|  |  | accuracy, `at_time` | 3 | 50.0 | 50.0 | +0.0 (+0.0 to +0.0) |  |"
    assert [line.split(" | ")[1] for line in lines[2:]] == ["contradicts", "undecided: 2 of 3 seeds"]


def test_a_pilot_is_told_and_decides_nothing(tmp_path: Path) -> None:
    paths = [written(tmp_path, "longvt_recall", seed, {"iou": 0.3 * seed}) for seed in range(4)]
    told = json.loads(paths[0].read_text())
    told["settings"]["cold"] = {}
    paths[0].write_text(json.dumps(told))
    paths += [written(tmp_path, "framemind_ladder", seed, {"accuracy": 0.1}) for seed in range(2)]
    found = report.table(report.read(loaded(paths))).splitlines()[2:]
    assert found[0] == (
        "| `longvt_recall (pilot, seed 0)` | decides nothing | iou, `at_time` | 1 | 50.0 | 50.0 | +0.0 | 0.0 |"
    )
    assert found[1].startswith("| `longvt_recall` | ") and found[1].split(" | ")[3:5] == ["3", "110.0"]
    # Pilots of unlike settings are not averaged.
    assert [line.split(" | ")[0] for line in found[2:]] == [
        f"| `framemind_ladder (pilot, seed {seed})`" for seed in range(2)
    ]


def test_a_seed_that_was_not_planned_decides_nothing(tmp_path: Path) -> None:
    paths = [written(tmp_path, "framethinker_bonus", seed, {"accuracy": 0.1 * (seed + 1)}) for seed in (0, 1, 3, 99)]
    found = report.table(report.read(loaded(paths))).splitlines()[2:]
    assert [line.split(" | ")[:2] for line in found] == [
        ["| `framethinker_bonus`", "undecided: 2 of 3 seeds"],
        ["| `framethinker_bonus (not planned, seed 3)`", "decides nothing"],
        ["| `framethinker_bonus (not planned, seed 99)`", "decides nothing"],
    ]


def test_what_is_known_of_some_seeds_is_told_as_such(tmp_path: Path) -> None:
    paths = [written(tmp_path, "framethinker_bonus", seed, {"accuracy": 0.5}) for seed in range(3)]
    told = json.loads(paths[2].read_text())
    del told[TRAINING]
    paths[2].write_text(json.dumps(told))
    (line,) = report.table(report.read(loaded(paths))).splitlines()[2:]
    assert line.endswith("| 2.0 (2 seeds) |")


def test_a_report_reads_learning_runs_for_fine_tuning_on_rollouts(tmp_path: Path) -> None:
    paths = []
    for seed, difference in enumerate([0.0, 0.01, 0.02]):
        accuracy = {name: {"all questions": {"mean": mean}} for name, mean in (("after RL", 0.7), ("after RFT", 0.71))}
        told = {"method": "longvt", "seed": seed, "plan": PLANS["longvt"].written(), "accuracy": accuracy}
        result = told | {RFT_LESS_RL: {"mean": difference}}
        paths.append(tmp_path / f"{seed}.json")
        paths[-1].write_text(json.dumps(result))
    (line,) = report.table(report.read(loaded(paths))).splitlines()[2:]
    assert line == "| `longvt_rft` | supports | accuracy, all questions | 3 | 71.0 | 70.0 | +1.0 (-1.5 to +3.5) |  |"

    told["plan"]["rl_steps"] += 1
    paths[-1].write_text(json.dumps(result))
    with pytest.raises(UsageError, match="made with other settings of longvt_rft than the present ones"):
        report.read(loaded(paths))


def branching_runs(seed: int, accuracy: float, tokens: int) -> dict[str, Any]:
    """LongVT's run of a seed, of 80 % and 1,000 tokens, and that with shared turns."""

    def told(method: str, mean: float, num_tokens: int) -> dict[str, Any]:
        measured = [{"generated_tokens": 0}, {"generated_tokens": num_tokens}]
        return {
            "method": method,
            "seed": seed,
            "plan": PLANS["longvt"].written(),
            "accuracy": {
                "after RL": {"needs another look": {"mean": mean}, "all questions": {"mean": mean}},
                "after RFT": {"all questions": {"mean": mean}},
            },
            "cost": {"measurements": measured},
        }

    plain = told("longvt", 0.8, 1000) | {RFT_LESS_RL: {"mean": 0.0}}
    return {f"plain_{seed}": plain, f"branching_{seed}": told("longvt_branching", accuracy, tokens)}


def test_a_report_compares_runs_with_shared_turns_with_those_without() -> None:
    runs = branching_runs(11, 0.81, 600) | branching_runs(12, 0.79, 650) | branching_runs(13, 0.80, 700)
    found = report.table(report.read(runs)).splitlines()[2:]
    assert found[0].startswith("| `longvt_rft` | supports |")
    accuracy, tokens = found[1:]
    assert accuracy.startswith(
        "| `longvt_branching` | supports | accuracy, needs another look | 3 | 80.0 | 80.0 | +0.0 "
    )
    assert "| tokens sampled in training, of longvt's | 3 | 65.0 | 100.0 | -35.0 " in tokens
    del runs["plain_12"]
    with pytest.raises(UsageError, match="branching_12: give the result of longvt, seed 12, too"):
        report.read(runs)


def test_the_page_shows_the_claims_as_they_are_decided() -> None:
    page = (Path(__file__).parents[2] / "docs" / "decisions" / "claims.md").read_text()
    _, table, rest = re.split("<!-- claims: (?:begin|end) -->\n", page)
    assert table.strip() == report.plan_table()
    least, bound = (round(-100 * value) for value in (learning_runs.LEAST, learning_runs.BOUND))
    rest = " ".join(rest.split())
    assert f"interval above -{bound}, mean at least -{least}." in rest and {*learning_runs.SEEDS.values()} == {3}
    rft = PLANS["longvt"].rft
    assert rft is not None and (rft.cold_share, rft.last_share, rft.epochs) == (0.5, 0.5, 1)
    assert f"learning rate {rft.learning_rate:.0e}, one epoch".replace("e-04", "e-4") in rest


def test_a_report_refuses_what_it_cannot_count(tmp_path: Path) -> None:
    path = written(tmp_path, "longvt_recall", 1, {"iou": 0.3})
    with pytest.raises(UsageError, match="second result"):
        report.read(loaded([path]) | {"copy": json.loads(path.read_text())})
    told = json.loads(path.read_text())
    told["settings"]["other"]["fields"] = ["time_reward=none"]
    path.write_text(json.dumps(told))
    with pytest.raises(UsageError, match="made with other settings of longvt_recall than the present ones; leave it"):
        report.read(loaded([path]))
    with pytest.raises(UsageError, match="no claim 'other'"):
        report.read(loaded([written(tmp_path, "other", 0, {"iou": 0.3})]))
    with pytest.raises(UsageError, match="neither"):
        report.read({"plain.json": {}})
