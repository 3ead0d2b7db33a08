"""Choose rows for reinforcement learning: of balanced length, and then neither too easy nor too hard.

The order is that of LongVT's paper (3.2): a pool of balanced lengths first, and rollouts only of its questions.
"""

from __future__ import annotations

import asyncio
import json
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median_low
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.sample import all_media_of
from verl_video_tools.data.append import work_through
from verl_video_tools.data.parquet import read_column, read_table, write_table
from verl_video_tools.data.sft import ExportReport
from verl_video_tools.records.records import read_records
from verl_video_tools.video import open_video

RowKey = tuple[str, str]
"""What a question is known by: path of the video, or of all its videos or images, and text."""

_PROBE_SECONDS = 30.0
_PROBES_AT_ONCE = 4
_TOO_EASY_OR_HARD = {0.0: "all wrong", 1.0: "all right"}


def pass_rates_of_records(records: str | Path) -> dict[RowKey, float]:
    """Share of right rollouts of each question in a recorded run; flagged rollouts do not count.

    Args:
        records: a file of records, or the folder of a training run.

    Raises:
        UsageError: there are no records, or they cannot be read.
    """
    verdicts: dict[RowKey, list[float]] = defaultdict(list)
    for line in read_records(Path(records), must_exist=True):
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
        if not key[0]:
            raise KeyError("video_path")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{where}: not a pass rate ({error!r}), got {text[:200]!r}") from error
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"{where}: pass_rate must be between 0 and 1, got {rate}")
    return key, rate


def filter_rows(
    in_parquet: str | Path,
    out_parquet: str | Path,
    pass_rates: Mapping[RowKey, float] | None = None,
    *,
    band_seconds: Sequence[float] = (),
    seed: int = 0,
) -> ExportReport:
    """Write a pool of rows of balanced length, less those whose rollouts were all right or all wrong.

    Args:
        pass_rates: by question; a row without one is dropped as "no rollouts" before anything else. None: the pool is
            written as it is, to make rollouts of.
        band_seconds: bounds between bands of video length, ascending, in seconds; a video as long as a bound is in the
            lower band. Without any, all rows are the pool.
        seed: of the choice of rows. The pool has as many of a band as the band of median size has (of two in the
            middle, the smaller one's), and all of those with fewer: short videos cannot crowd out the others, and a
            band of few rows does not cut the others to its size.

    Returns:
        Rows kept, by band, and dropped, by reason.

    Raises:
        UsageError: a file cannot be read or written, the bounds do not ascend, neither rates nor bounds are given,
            a row has no question, a row is not about one video (only with `band_seconds`), or no row is left.
        VideoError: a video of a row that may be in the pool cannot be read (only with `band_seconds`).
    """
    if list(band_seconds) != sorted(set(band_seconds)) or any(bound <= 0 for bound in band_seconds):
        raise UsageError(f"bounds of bands must be positive and ascend, got {list(band_seconds)}")
    if pass_rates is None and not band_seconds:
        raise UsageError("nothing to choose by: give pass rates, bounds of bands, or both")
    table = read_table(in_parquet)
    report = ExportReport()
    extra_infos = list(_extra_infos(in_parquet))
    known = [index for index, row in enumerate(extra_infos) if pass_rates is None or _key(row) in pass_rates]
    if unknown := len(extra_infos) - len(known):
        report.dropped["no rollouts"] += unknown
    bands = dict.fromkeys(known, "any length")
    if band_seconds:
        videos = {index: _video_of(index, extra_infos[index]) for index in known}
        durations = asyncio.run(_durations(set(videos.values())))
        bands = {index: _band(durations[video], band_seconds) for index, video in videos.items()}
    pool = _balanced(bands, seed) if band_seconds else known
    if surplus := len(known) - len(pool):
        report.dropped["balance of lengths"] += surplus
    kept: list[int] = []
    for index in pool:
        reason = None if pass_rates is None else _TOO_EASY_OR_HARD.get(pass_rates[_key(extra_infos[index])])
        if reason is not None:
            report.dropped[reason] += 1
        else:
            kept.append(index)
            report.kept[bands[index]] += 1
    if not kept:
        raise UsageError(f"{in_parquet}: no row is left: {report}")
    write_table(table.take(kept), out_parquet)
    return report


def _extra_infos(source: str | Path) -> Iterator[Mapping[str, Any]]:
    for number, extra_info in enumerate(read_column(source, "extra_info")):
        if not isinstance(extra_info, Mapping) or extra_info.get("question") is None:
            raise UsageError(f"{source}: row {number} has no extra_info.question; `vvt data validate` finds bad rows")
        yield extra_info


def _key(fields: Mapping[str, Any]) -> RowKey:
    return "\0".join(all_media_of(fields)), str(fields["question"])


def _video_of(number: int, fields: Mapping[str, Any]) -> str:
    media = all_media_of(fields)
    if len(media) != 1 or fields.get("image_paths"):
        raise UsageError(f"row {number} is not about one video, so it is in no band of lengths; leave such rows out")
    return media[0]


async def _durations(paths: Iterable[str]) -> dict[str, float]:
    """Seconds of each video, probed a few at a time."""
    durations_seconds: dict[str, float] = {}

    async def probe(path: str) -> None:
        video = await open_video(path, deadline_seconds=_PROBE_SECONDS)
        durations_seconds[path] = video.info.duration_seconds

    await work_through(sorted(paths), probe, _PROBES_AT_ONCE)
    return durations_seconds


def _band(duration_seconds: float, bounds: Sequence[float]) -> str:
    place = bisect_left(bounds, duration_seconds)
    lower = bounds[place - 1] if place else 0.0
    return f"{lower:g}-{bounds[place]:g} s" if place < len(bounds) else f"above {lower:g} s"


def _balanced(bands: Mapping[int, str], seed: int) -> list[int]:
    """Of each band as many members as the median one has at most, in their old order."""
    members: dict[str, list[int]] = defaultdict(list)
    for index, band in bands.items():
        members[band].append(index)
    if not members:
        return []
    most = median_low(map(len, members.values()))
    rng = random.Random(seed)
    return sorted(
        index for band in sorted(members) for index in rng.sample(members[band], min(most, len(members[band])))
    )
