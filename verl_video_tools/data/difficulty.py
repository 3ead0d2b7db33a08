"""Choose rows for reinforcement learning: neither too easy nor too hard, and of balanced length (LongVT, paper 3.2)."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.data.parquet import read_table, write_table
from verl_video_tools.data.sft import ExportReport
from verl_video_tools.errors import UsageError
from verl_video_tools.trace.records import read_records
from verl_video_tools.video import open_video

RowKey = tuple[str, str]
"""What a question is known by: path of the video, and text."""

_PROBE_SECONDS = 30.0


def pass_rates_of_records(records: str | Path) -> dict[RowKey, float]:
    """Share of right rollouts of each question in a recorded run; flagged rollouts do not count.

    Args:
        records: a file of records, or the folder of a training run.

    Raises:
        UsageError: there are no records, or they cannot be read.
    """
    verdicts: dict[RowKey, list[float]] = defaultdict(list)
    for line in read_records(Path(records)):
        if not line["trajectory"].flags:
            verdicts[_key(line["extra_info"])].append(float(line["reward"]["acc"]))
    if not verdicts:
        raise UsageError(f"{records} holds no recorded rollouts")
    return {key: sum(values) / len(values) for key, values in verdicts.items()}


def pass_rates_of_file(path: str | Path) -> dict[RowKey, float]:
    """Pass rates from JSON lines ``{"video_path": str, "question": str, "pass_rate": float}``.

    Raises:
        UsageError: the file cannot be read, or a line lacks a field or has a rate outside [0, 1].
    """
    try:
        with Path(path).open(encoding="utf-8-sig") as lines:
            return dict(_pass_rate(text, f"{path}, line {number}") for number, text in enumerate(lines, start=1))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read pass rates from {path}: {error}") from error


def _pass_rate(text: str, where: str) -> tuple[RowKey, float]:
    try:
        line = json.loads(text)
        key, rate = _key(line), float(line["pass_rate"])
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{where}: not a pass rate ({error!r}), got {text[:200]!r}") from error
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"{where}: pass_rate must be between 0 and 1, got {rate}")
    return key, rate


def filter_rows(
    in_parquet: str | Path,
    out_parquet: str | Path,
    pass_rates: Mapping[RowKey, float],
    *,
    band_seconds: Sequence[float] = (),
    seed: int = 0,
) -> ExportReport:
    """Write the rows whose rollouts were neither all right nor all wrong.

    Args:
        pass_rates: by question; a row without one is dropped as "no rollouts".
        band_seconds: bounds between bands of video length, ascending, in seconds. With any, every band that has rows
            keeps as many as the smallest one, chosen by `seed`; a video as long as a bound is in the lower band.

    Returns:
        Rows kept, by band, and dropped, by reason.

    Raises:
        UsageError: a file cannot be read or written, the bounds do not ascend, or no row is left.
        VideoError: a video of a row that would be kept cannot be read (only with `band_seconds`).
    """
    if list(band_seconds) != sorted(set(band_seconds)) or any(bound <= 0 for bound in band_seconds):
        raise UsageError(f"bounds of bands must be positive and ascend, got {list(band_seconds)}")
    table = read_table(in_parquet)
    report = ExportReport()
    candidates: list[int] = []
    extra_infos: list[dict[str, Any]] = table.column("extra_info").to_pylist()
    for index, extra_info in enumerate(extra_infos):
        if reason := _too_easy_or_hard(pass_rates.get(_key(extra_info))):
            report.dropped[reason] += 1
        else:
            candidates.append(index)
    kept = candidates
    if band_seconds:
        paths = {str(extra_infos[index]["video_path"]) for index in candidates}
        durations = asyncio.run(_durations(paths))
        bands = {index: _band(durations[str(extra_infos[index]["video_path"])], band_seconds) for index in candidates}
        kept = _balanced(bands, seed)
        report.dropped["balance of lengths"] += len(candidates) - len(kept)
        report.kept.update(bands[index] for index in kept)
    else:
        report.kept["any length"] += len(kept)
    if not kept:
        raise UsageError(f"{in_parquet}: no row is left: {report}")
    write_table(table.take(kept), out_parquet)
    return report


def _key(fields: Mapping[str, Any]) -> RowKey:
    return str(fields["video_path"]), str(fields["question"])


def _too_easy_or_hard(pass_rate: float | None) -> str | None:
    if pass_rate is None:
        return "no rollouts"
    return {0.0: "all wrong", 1.0: "all right"}.get(pass_rate)


async def _durations(paths: Iterable[str]) -> dict[str, float]:
    """Seconds of each video, probed a few at a time."""
    slots = asyncio.Semaphore(4)

    async def probe(path: str) -> tuple[str, float]:
        async with slots:
            video = await open_video(path, deadline_seconds=_PROBE_SECONDS)
            return path, video.info.duration_seconds

    return dict(await asyncio.gather(*(probe(path) for path in sorted(paths))))


def _band(duration_seconds: float, bounds: Sequence[float]) -> str:
    lower, upper = 0.0, math.inf
    for bound in bounds:
        if duration_seconds <= bound:
            upper = bound
            break
        lower = bound
    return f"{lower:g}-{upper:g} s" if math.isfinite(upper) else f"above {lower:g} s"


def _balanced(bands: Mapping[int, str], seed: int) -> list[int]:
    """As many members of each band as the smallest has, in their old order."""
    members: dict[str, list[int]] = defaultdict(list)
    for index, band in bands.items():
        members[band].append(index)
    if not members:
        return []
    size = min(map(len, members.values()))
    rng = random.Random(seed)
    return sorted(index for band in sorted(members) for index in rng.sample(members[band], size))
