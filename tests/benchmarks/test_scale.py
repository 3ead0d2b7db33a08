"""The pure parts of `make bench-scale`: what follows from measurements, not the measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scale import constants, critical_path, picture, summary, table
from benchmarks.scale.cases import CASES
from verl_video_tools.methods import get_method

SIZE = critical_path.StepSize(
    method="longvt",
    family="qwen2_5_vl",
    num_groups=16,
    group_size=16,
    num_turns=5,
    initial_tokens=36_000,
    response_tokens=16_000,
    image_tokens=45_000,
)
NO_WORK = critical_path.HostWork(
    worker_loop_seconds=0, worker_seconds=0, server_seconds=0, queue_bytes=0, makes_tensors=False, prefills=1
)


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
            "prompt_tokens": 30_000.0,
            "response_tokens": 16_000.0,
            "images_per_row": [752] * 4,
            "tensor_bytes": 800_000_000,
            "rows_with_references": 0,
            "block_bytes": 0,
            "shared_block_bytes": 0,
        },
        "validation": {"tensor_bytes": 0, "block_bytes": 0},
        **changes,
    }


def result(**changes: Any) -> dict[str, Any]:
    turns = [{"cpu_seconds": 1.0, "loop_cpu_seconds": 0.5}, {"cpu_seconds": 2.0, "loop_cpu_seconds": 1.0}]
    return {"commit": "0123456789", "methods": {"longvt": measured(**changes)}, "front_end": {"turns": turns}}


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
    assert summary.prefills_per_group(measured()) == pytest.approx(2.04)
    assert summary.encodes_per_group(measured()) == 2.0
    assert summary.queue_copies(measured(), 16) == 16.0
    blocks = {"tensor_bytes": 0, "block_bytes": 200_000_000, "shared_block_bytes": 72_000_000}
    references = {**measured()["queue"], **blocks, "rows_with_references": 4}
    assert summary.read_bytes_per_rollout(measured(queue=references)) == 72e6 / 2 + 32e6
    assert summary.queue_copies(measured(queue=references), 16) == 1.0
    work = summary.host_work(measured())
    assert (work.worker_loop_seconds, work.server_seconds, work.queue_bytes) == (0.5, 4.0, 2e8)
    assert work.prefills == pytest.approx(1.02)
    size = summary.step_size(measured())
    assert size.num_rollouts == 256 and size.image_tokens == pytest.approx(752 * 30_000 / 512)


def test_the_busiest_resource_bounds_the_rollouts() -> None:
    idle = critical_path.step(SIZE, NO_WORK, version="after", nodes=1)
    assert idle.bound_by == "GPUs" and idle.host_wait == 0 and idle.gpu_share == 1
    busy = replace(NO_WORK, worker_loop_seconds=100.0)
    step = critical_path.step(SIZE, busy, version="after", nodes=1)
    assert step.bound_by == "agent loop worker's event loop"
    assert step.gpu_rollout + step.host_wait == pytest.approx(16 * 100.0)  # a worker for each question
    assert step.seconds == pytest.approx(idle.seconds + step.host_wait)


def test_faster_gpus_wait_for_the_same_hosts() -> None:
    work = replace(NO_WORK, server_seconds=10.0)
    slow, fast = (critical_path.step(SIZE, work, version="after", nodes=1, gpu_speed=s) for s in (1.0, 2.0))
    assert fast.gpu_training == slow.gpu_training / 2
    assert fast.gpu_rollout + fast.host_wait >= 32 * 10.0  # 256 rollouts on 8 servers
    assert fast.gpu_share < slow.gpu_share


@pytest.mark.parametrize(("nodes", "before", "after"), [(1, 8, 1), (8, 16, 4)])
def test_servers_that_compute_a_groups_frames(nodes: int, before: int, after: int) -> None:
    num_gpus = nodes * constants.GPUS_PER_NODE
    assert critical_path.prefills_per_group(SIZE, NO_WORK, num_gpus, "before") == before
    assert critical_path.prefills_per_group(SIZE, NO_WORK, num_gpus, "after") == after


def test_the_queue_is_read_once_for_each_pass() -> None:
    work = replace(NO_WORK, queue_bytes=3e6)
    step = critical_path.step(SIZE, work, version="before", nodes=1)
    assert (
        step.tensors
        == 0
        < critical_path.step(SIZE, replace(work, makes_tensors=True), version="after", nodes=1).tensors
    )
    assert step.queue == pytest.approx(3 * 256 * 3e6 / 8 / constants.QUEUE_UNIT_BYTES_PER_SECOND)


def test_a_missed_limit_is_named() -> None:
    text = table.measures_table(result(), result())
    rows = {line.split(" | ")[0][2:]: line for line in text.splitlines()}
    assert "0123456 (4 rollouts)" in text.splitlines()[0]
    assert rows["initial-frame encodes per group, two replicas"].endswith("| 1.10 | missed |")
    assert rows["CPU of workers per group of 16"].endswith("| 32.00 s | 32.00 s | 15.00 s | missed |")
    good = result(worker={**measured()["worker"], "cpu_seconds": 3.0})
    assert "| 32.00 s | 12.00 s | 15.00 s |  |" in table.measures_table(result(), good)


def test_methods_with_their_memory() -> None:
    small = result(worker={**measured()["worker"], "peak_memory_bytes": 1_500_000_000})
    row = table.methods_table(result(), small).splitlines()[-1]
    assert row.startswith("| longvt | 0.500 -> 0.500 |") and row.endswith("| 2.00 -> 1.50 | 4 |")


@pytest.mark.slow
def test_tables_and_picture_of_steps(tmp_path: Path) -> None:
    works = {"before": summary.host_work(measured()), "after": NO_WORK}
    steps = critical_path.all_steps(summary.step_size(measured()), works)
    assert len(steps) == 2 * len(constants.NODES) * len(constants.GPU_SPEEDS)
    assert all(step["modelled"] for step in steps)
    text = table.steps_table(steps)
    assert text.count("| longvt |") == 4 and "\\* modelled" in text
    picture.draw(steps, tmp_path / "steps.svg", nodes=constants.NODES)
    drawn = (tmp_path / "steps.svg").read_text()
    assert drawn.startswith("<?xml") and "longvt, before" in drawn
