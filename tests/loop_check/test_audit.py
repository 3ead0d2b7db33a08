"""Verdicts on hand-made rollouts, and the tables that say them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.loop_check.hand_made import MASK, context, rollout
from verl_video_tools.loop_check.advantages import expected_advantages
from verl_video_tools.loop_check.audit import CHECK_NAMES, CLEAN, Verdict, audit, is_good, sentences, told_by_training
from verl_video_tools.loop_check.records import Rollout
from verl_video_tools.loop_check.table import explanations, markdown_table, outcome, results, text_table

SHIFTED = [0, *MASK[:-1]]
ZEROS = [0] * len(MASK)


def verdict(rollouts: list[Rollout], fault: str, **changes: Any) -> Verdict:
    return next(found for found in audit(rollouts, context(**changes)) if found.fault == fault)


def shifted(number: int, **trained: Any) -> Rollout:
    row = {"planted": True, "response_mask": SHIFTED}
    trained = {"response_mask": SHIFTED, **trained}
    return rollout("mask_off_by_one", uid=f"g{number}", row=row, trained=trained)


def test_a_fault_that_is_caught() -> None:
    found = verdict([rollout(), shifted(1), shifted(2)], "mask_off_by_one")
    assert (found.num_rollouts, found.num_caught, found.num_uncaught) == (2, 2, 0)
    assert found.by_check["mask"] == 2 and found.is_good
    assert found.examples["mask"] == "the mask is 0 at token 0 of the response"
    assert outcome(found.to_dict()) == "caught"


def test_a_fault_that_no_check_sees() -> None:
    missed = rollout("my_fault", row={"planted": True})
    found = verdict([rollout(uid="clean"), missed], "my_fault")
    assert (found.num_rollouts, found.num_uncaught, found.is_good) == (1, 1, False)
    assert outcome(found.to_dict()) == "MISSED"


def test_a_fault_that_was_never_planted() -> None:
    found = verdict([rollout(uid="clean"), rollout("wrong_order")], "wrong_order")
    assert (found.num_rollouts, found.is_good) == (0, False)
    assert outcome(found.to_dict()) == "never planted"


def test_a_fault_that_the_loop_keeps_out() -> None:
    flagged = {"planted": True, "response_mask": ZEROS, "flags": ["invariant"]}
    found = verdict([rollout(uid="clean"), rollout("f", row=flagged, trained={"response_mask": ZEROS})], "f")
    assert (found.num_left_out, found.num_caught, found.is_good, found.flags) == (1, 0, True, {"invariant": 1})
    assert outcome(found.to_dict()) == "kept out"
    assert told_by_training(found, None, 0.05) == "1 of 1 left out (invariant)"


def test_a_fault_that_fails() -> None:
    failed = {"planted": True, "error": "RuntimeError: no", "response_mask": []}
    found = verdict([rollout(uid="clean"), rollout("f", row=failed, is_trained=False)], "f")
    assert (found.num_failed, found.is_good, found.examples["failed"]) == (1, True, "RuntimeError: no")
    assert told_by_training(found, None, 0.05) == "1 of 1 rollouts fail"


def test_a_clean_row_that_breaks_a_check() -> None:
    found = audit([rollout(row={"position_ids_CL": []})], context())
    assert not is_good(found) and outcome(found[0].to_dict()) == "FAILED"


def test_what_is_wrong_is_explained() -> None:
    rollouts = [rollout(row={"position_ids_CL": []}), rollout("wrong_order", uid="h"), shifted(1)]
    found = results(audit(rollouts, context()), ["my_loop"], 0.05)
    positions, never_planted = explanations(found)
    assert positions.startswith("clean rows break positions. What should hold: The row's positions are those")
    assert positions.endswith("For example: the positions are not the model's own.")
    assert never_planted.startswith("wrong_order (never planted): ")


def test_no_clean_rows_prove_nothing() -> None:
    assert not is_good(audit([shifted(1)], context()))


def test_siblings_of_a_lost_rollout_are_told_of_it_alone() -> None:
    scores = [1.0, 0.0, 0.5]
    counted = [
        rollout("lost_rollout", i, score=score, advantage=advantage, row={"lost": i == 0, "planted": i == 0})
        for i, (score, advantage) in enumerate(zip(scores, expected_advantages(scores, True), strict=True))
    ]
    found = verdict([rollout(uid="clean"), *counted], "lost_rollout")
    assert (found.num_rollouts, found.num_caught, dict(found.by_check)) == (1, 1, {"advantages": 1})


def test_what_training_tells_by_itself() -> None:
    apart = rollout("f", row={"planted": True}, trained={"actor_log_probs": [-9.0] * len(MASK)})
    clean = rollout(uid="clean")
    found = verdict([clean, apart], "f")
    engine = apart.trained[0].log_probs
    assert engine is not None
    probs = [math.exp(value) for value, keep in zip(engine, MASK, strict=True) if keep]
    assert found.probs_difference == pytest.approx(sum(probs) / len(probs) - math.exp(-9))
    assert told_by_training(found, 0.0, 0.05).startswith("rollout_probs_diff 0.")
    assert told_by_training(found, 0.0, 1.0) == "nothing"


def test_every_check_is_explained() -> None:
    assert set(sentences()) == set(CHECK_NAMES)


def test_the_tables() -> None:
    untapped = context(settings=None)
    found = results(audit([rollout(uid="clean"), shifted(1)], untapped), ["my_loop"], 0.05)
    assert json.loads(json.dumps(found)) == found
    header, clean, mask = text_table(found).splitlines()
    assert header.split() == ["fault", "rollouts", "outcome", "checks", "training", "shows"]
    assert clean.split()[:3] == [CLEAN, "1", "clean"] and "not applied: advantages" in clean
    assert mask.split()[:3] == ["mask_off_by_one", "1", "caught"] and "mask 1" in mask
    other = results(audit([rollout(uid="clean")], untapped), ["tool_agent"], 0.05)
    lines = markdown_table([found, other]).splitlines()
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|") == lines[3].count("|")
    assert lines[3].startswith("| mask_off_by_one | 1 of 1: `mask`") and "not run" in lines[3]
