"""What an item costs: tokens of its frames, tokens and requests at the endpoint, and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, quantiles
from typing import Any

from verl_video_tools.core.types import Trajectory
from verl_video_tools.data.generation.record import Record
from verl_video_tools.records.token_costs import visual_tokens

COSTS = ("visual_tokens", "prompt_tokens", "completion_tokens", "requests")
"""Of a rollout, in the order of tables:

- `visual_tokens`: of the frames shown, each counted once, two of a video input as one, as the models merge them; None
  where the model's processor is not known.
- `prompt_tokens`: of all requests together, so that what is sent again counts again; None where the endpoint does not
  count them. A cache of prefixes at the endpoint saves time, and none of these.
- `completion_tokens`: of all replies, likewise.
- `requests`: replies of the endpoint that the rollout consists of.
"""


def costs_of(record: Record, protocol: Mapping[str, Any]) -> dict[str, int | None]:
    """The `COSTS` of a recorded rollout; all None of one that an earlier version has recorded, visual tokens aside."""
    usage = record.get("usage") or {}
    tokens = {name: usage.get(name) or None for name in ("prompt_tokens", "completion_tokens")}
    return {
        "visual_tokens": _visual_tokens(record["trajectory"], protocol),
        **tokens,
        "requests": usage.get("requests"),
    }


def summed(costs: Sequence[Mapping[str, int | None]]) -> dict[str, dict[str, float] | None]:
    """Sum and mean per rollout of each of the `COSTS`; None where one of the rollouts does not tell."""
    totals: dict[str, dict[str, float] | None] = {}
    for name in COSTS:
        values = [value for each in costs if (value := each[name]) is not None]
        is_known = bool(values) and len(values) == len(costs)
        totals[name] = {"sum": sum(values), "mean": fmean(values)} if is_known else None
    return totals


def timing(records: Sequence[Record], concurrency: int) -> dict[str, Any]:
    """The content of `timing.json`: seconds of the rollouts that did not fail, None where none tells.

    Args:
        concurrency: rollouts under way at a time; what one waits for the endpoint's work on the others counts.
    """
    seconds = [float(record["seconds"]) for record in records if record.get("seconds")]
    if not seconds:
        return {"concurrency": concurrency, "rollouts": 0, "seconds": None}
    percentiles = quantiles(seconds, n=20, method="inclusive") if len(seconds) > 1 else seconds * 19
    figures = {"mean": fmean(seconds), "median": percentiles[9], "p95": percentiles[18], "sum": sum(seconds)}
    rounded = {name: round(value, 3) for name, value in figures.items()}
    return {"concurrency": concurrency, "rollouts": len(seconds), "seconds": rounded}


def _visual_tokens(trajectory: Trajectory, protocol: Mapping[str, Any]) -> int | None:
    sizes = protocol["pictures"]["sizes"]
    if not isinstance(sizes, Mapping):
        return None  # the server fits the frames to a processor that we do not know
    return visual_tokens(trajectory, sizes["factor"], protocol["pictures"].get("frames_per_patch", 1))
