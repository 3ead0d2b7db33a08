"""Imported dialogues executed anew: which of them replay, and their records (docs/cold-start.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.types import Method, Sample, StopReason, Trajectory
from verl_video_tools.data.append import work_through
from verl_video_tools.data.sft import execute
from verl_video_tools.methods.breakdown import reward_info
from verl_video_tools.services.retrieval import RecordedRetriever

DIALOGUES_PER_BATCH = 32
_AT_ONCE = 4
_FRAMES_TOLD = 5
_TOLERANCE = {"index": 1.0, "seconds": 0.1}
"""Frames so near are the same: decoders count alike but for rounding, and labels have two decimals."""

Record = dict[str, Any]
"""A line of a file of records, without `extra_info`, which the row has once it is finished."""


def replay_rows(
    rows: Sequence[Mapping[str, Any]], method: Method, listed_by: Literal["index", "seconds"] | None = None
) -> list[Record | str]:
    """Execute the turns of rows as fine-tuning will.

    Args:
        rows: with `turns`, and with `retrieved_frames` where calls found frames by text.
        method: whose turns they are.
        listed_by: what the rows' `listed_frames` are, if they have any (`Benchmark.frames_listed_by`).

    Returns:
        For each row its record, as `vvt data generate` writes one, with `shown_otherwise`: where the replay shows other
        frames than the dialogue lists, or null. Or why it does not replay: its video cannot be read,
        a call was not executed, or it does not end with its last turn's answer.
    """
    found: list[Record | str] = [""] * len(rows)

    async def replay(number: int) -> None:
        found[number] = await _replayed(rows[number], method, listed_by)

    asyncio.run(work_through(range(len(rows)), replay, _AT_ONCE))
    return found


async def _replayed(
    row: Mapping[str, Any], method: Method, listed_by: Literal["index", "seconds"] | None
) -> Record | str:
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
        "shown_otherwise": None if listed_by is None else _difference(trajectory, row["listed_frames"], listed_by),
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


def _difference(
    trajectory: Trajectory, listed: Sequence[Sequence[float]], listed_by: Literal["index", "seconds"]
) -> str | None:
    """The first place where other frames were shown than a dialogue lists; None where there is none."""
    looks = [trajectory.initial_frames, *(call.frames for call in trajectory.calls() if call.frames)]
    attribute = "index" if listed_by == "index" else "timestamp_seconds"
    shown = [[float(getattr(frame, attribute)) for frame in frames] for frames in looks if frames]
    for number, (here, there) in enumerate(zip_longest(shown, listed, fillvalue=())):
        same = len(here) == len(there) and all(
            abs(one - other) <= _TOLERANCE[listed_by] for one, other in zip(here, there, strict=True)
        )
        if not same:
            place = "initial frames" if number == 0 else f"observation {number}"
            return f"{place}: {_some(here)} here, {_some(there)} there ({listed_by})"
    return None


def _some(frames: Sequence[float]) -> str:
    texts = [f"{frame:g}" for frame in frames]
    if len(texts) > _FRAMES_TOLD:
        texts = [*texts[: _FRAMES_TOLD - 1], "...", texts[-1]]
    return f"{len(frames)} frames ({', '.join(texts)})" if texts else "none"


def _refusals(trajectory: Trajectory) -> str:
    return "; ".join(str(call.error) for call in trajectory.calls() if not call.ok)


async def _reward(trajectory: Trajectory, sample: Sample, method: Method) -> Mapping[str, float]:
    """What the dialogue earns; nothing where only a judge could say, or the row cannot be graded."""
    try:
        method.check_sample(sample, None)
        return await method.score(trajectory, sample, None)
    except (RowError, UsageError):
        return zero_reward(method)
