"""Imported dialogues executed anew: which of them replay, and their records (docs/cold-start.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Method, Sample, StopReason, Trajectory
from verl_video_tools.data.append import work_through
from verl_video_tools.data.sft import execute
from verl_video_tools.methods.breakdown import reward_info
from verl_video_tools.services.retrieval import RecordedRetriever

DIALOGUES_PER_BATCH = 32
_AT_ONCE = 4

Record = dict[str, Any]
"""A line of a file of records, without `extra_info`, which the row has once it is finished."""


def replay_rows(rows: Sequence[Mapping[str, Any]], method: Method) -> list[Record | str]:
    """Execute the turns of rows as fine-tuning will.

    Args:
        rows: with `turns`, and with `retrieved_frames` where calls found frames by text.
        method: whose turns they are.

    Returns:
        For each row its record, as `vvt data generate` writes one, or why it does not replay: its video cannot be read,
        a call was not executed, or it does not end with its last turn's answer.
    """
    found: list[Record | str] = [""] * len(rows)

    async def replay(number: int) -> None:
        found[number] = await _replayed(rows[number], method)

    asyncio.run(work_through(range(len(rows)), replay, _AT_ONCE))
    return found


async def _replayed(row: Mapping[str, Any], method: Method) -> Record | str:
    sample = Sample.from_row(row)
    retriever = RecordedRetriever(row.get("retrieved_frames") or ())
    trajectory = await execute(method, sample, row["turns"], retriever)
    fault = _fault(trajectory, len(row["turns"]))
    if fault is not None:
        return fault
    return {
        "step": 0,
        "uid": str(row["extra_info"]["index"]),
        "session_id": 0,
        "agent_name": method.name,
        "data_source": row["data_source"],
        "ground_truth": row["reward_model"]["ground_truth"],
        "first_trained_turn": 0,
        "reward": reward_info(method, await _reward(trajectory, sample, method), sample, False),
        "trajectory": trajectory.to_dict(),
    }


def _fault(trajectory: Trajectory, num_turns: int) -> str | None:
    if not trajectory.turns or trajectory.flags:
        return f"it does not replay: {trajectory.error or _refusals(trajectory) or ', '.join(trajectory.flags)}"
    if refused := _refusals(trajectory):
        return f"a call does not replay: {refused}"
    if trajectory.stop_reason is not StopReason.ANSWER or len(trajectory.turns) < num_turns:
        return f"it ends after turn {len(trajectory.turns)} of {num_turns}: {trajectory.stop_reason}"
    return None


def _refusals(trajectory: Trajectory) -> str:
    return "; ".join(str(call.error) for call in trajectory.calls() if not call.ok)


async def _reward(trajectory: Trajectory, sample: Sample, method: Method) -> Mapping[str, float]:
    """What the dialogue earns; nothing where only a judge could say, or the row cannot be graded."""
    try:
        method.check_sample(sample, None)
        return await method.score(trajectory, sample, None)
    except (RowError, UsageError):
        return method.zero_reward()
