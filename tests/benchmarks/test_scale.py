"""The pure parts of `make bench-scale`: what follows from measurements, not the measurements."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.scale import table
from benchmarks.scale.cases import CASES
from verl_video_tools.methods import get_method


def measured(**changes: Any) -> dict[str, Any]:
    """One group of four rollouts on two servers, as `measure` writes it."""
    process = {
        "loop_cpu_seconds": 2.0,
        "cpu_seconds": 8.0,
        "longest_busy_pause_seconds": 0.25,
        "peak_memory_bytes": 2_000_000_000,
    }
    core = {"initial_tokens": 30_000, "initial_tokens_computed": 30_600, "initial_images_encoded": 512}
    return {
        "method": "longvt",
        "commit": "0123456789",
        "num_groups": 1,
        "group_size": 4,
        "worker": {**process, "sent": {"bytes": 400_000_000}},
        "servers": [{**process, "core": core}, {**process, "core": core}],
        "queue": {
            "num_rows": 4,
            "tensor_bytes": 800_000_000,
            "rows_with_references": 0,
            "block_bytes": 0,
        },
        "validation": {"tensor_bytes": 0, "block_bytes": 0},
        **changes,
    }


def result(**changes: Any) -> dict[str, Any]:
    turns = [{"cpu_seconds": 1.0, "loop_cpu_seconds": 0.5}, {"cpu_seconds": 2.0, "loop_cpu_seconds": 1.0}]
    longvt = measured(**changes)
    return {"methods": {"longvt": longvt}, "stock_front_end": longvt, "front_end": {"turns": turns}}


@pytest.mark.parametrize("method", CASES)
def test_cases_are_the_methods_at_full_size(method: str) -> None:
    case, limits = CASES[method], get_method(method).recipe_budget
    assert case.num_calls + 1 <= get_method(method).max_turns
    assert case.prompt_length == limits.prompt_tokens and case.max_images == limits.images
    assert limits.response_tokens <= case.response_length <= limits.response_tokens + 2048
    assert case.prompt_length + case.response_length <= max(case.max_model_len, case.response_length * 2)


@pytest.mark.parametrize("method", CASES)
def test_rollouts_look_at_places_of_their_own(method: str) -> None:
    case = CASES[method]
    rollouts = [tuple(case.turns(variant)) for variant in range(case.group_size)]
    assert len(set(rollouts)) == case.group_size
    assert all(len(set(turns)) == len(turns) for turns in rollouts)


def test_what_is_counted_on_two_servers() -> None:
    assert table.prefills_per_group(measured()) == pytest.approx(2.04)
    assert table.encodes_per_group(measured()) == 2.0
    assert table.queue_copies(measured(), 16) == 16.0
    references = {"num_rows": 4, "tensor_bytes": 0, "block_bytes": 200_000_000, "rows_with_references": 4}
    assert table.queue_copies(measured(queue=references), 16) == 1.0
    assert table.queue_bytes(references) == 2e8


def test_a_missed_limit_is_named() -> None:
    text = table.measures_table(result())
    rows = {line.split(" | ")[0][2:]: line for line in text.splitlines()}
    assert "0123456 (4 rollouts)" in text.splitlines()[0]
    assert rows["initial-frame encodes per group, two replicas"].endswith("| 2.00 | 1.10 | missed |")
    assert rows["CPU of workers per group of 16"].endswith("| 32.00 s | 15.00 s | missed |")
    good = result(worker={**measured()["worker"], "cpu_seconds": 3.0})
    assert "| 12.00 s | 15.00 s |  |" in table.measures_table(good)


def test_methods_per_rollout() -> None:
    row = table.methods_table(result()).splitlines()[-1]
    assert row == "| longvt | 0.500 | 2.00 | 1.00 | 2.04 | 200 | 2.00 | 4 |"
