"""Choose rows for reinforcement learning: of balanced length, and then neither too easy nor too hard.

The order is that of LongVT's paper (3.2): a pool of balanced lengths first, and rollouts only of its questions.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median_low
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.sample import all_media_of
from verl_video_tools.data.parquet import read_column, read_table, write_table
from verl_video_tools.data.sft import ExportReport
from verl_video_tools.records.records import read_records
from verl_video_tools.video import Video

RowKey = tuple[str, str]
"""What a question is known by: path of the video, or of all its videos or images, and text."""

_OPENING_SECONDS = 30.0
_VIDEOS_AT_ONCE = 4
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
            lower band. A band gives as many rows, chosen by `seed`, as the band of median size has (of two in the
            middle, the smaller one's): short videos cannot crowd out the others, and a band of few rows does not cut
            the others to its size. Without any bound, all rows are the pool.

    Returns:
        Rows kept, by band, and dropped, by reason.

    Raises:
        UsageError: a file cannot be read or written, the bounds do not ascend, neither rates nor bounds are given, a
            row has no question, a row is not about one video (only with `band_seconds`), or no row is left.
        VideoError: a video of a row that may be in the pool cannot be read (only with `band_seconds`).
    """
    if list(band_seconds) != sorted(set(band_seconds)) or any(bound <= 0 for bound in band_seconds):
        raise UsageError(f"bounds of bands must be positive and ascend, got {list(band_seconds)}")
    if pass_rates is None and not band_seconds:
        raise UsageError("nothing to choose by: give pass rates, bounds of bands, or both")
    table = read_table(in_parquet)
    report = ExportReport()
    questions = dict(enumerate(_extra_infos(in_parquet)))
    pool = {number: row for number, row in questions.items() if pass_rates is None or _key(row) in pass_rates}
    bands = dict.fromkeys(pool, "any length")
    if band_seconds:
        bands = _balanced(_bands(pool, band_seconds), seed)
    surplus = {"no rollouts": len(questions) - len(pool), "balance of lengths": len(pool) - len(bands)}
    report.dropped.update({reason: count for reason, count in surplus.items() if count})
    kept: list[int] = []
    for number, band in bands.items():
        reason = None if pass_rates is None else _TOO_EASY_OR_HARD.get(pass_rates[_key(questions[number])])
        if reason is not None:
            report.dropped[reason] += 1
        else:
            kept.append(number)
            report.kept[band] += 1
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


def _bands(pool: Mapping[int, Mapping[str, Any]], bounds: Sequence[float]) -> dict[int, str]:
    """The band of each row's video."""
    videos: dict[int, str] = {}
    for number, fields in pool.items():
        media = all_media_of(fields)
        if len(media) != 1 or fields.get("image_paths"):
            raise UsageError(f"row {number} is not about one video, so it is in no band of lengths; leave it out")
        videos[number] = media[0]
    paths = sorted(set(videos.values()))
    with ThreadPoolExecutor(_VIDEOS_AT_ONCE) as pool_of_threads:
        durations_seconds = dict(zip(paths, pool_of_threads.map(_duration_seconds, paths), strict=True))
    return {number: _band(durations_seconds[path], bounds) for number, path in videos.items()}


def _duration_seconds(path: str) -> float:
    with Video(path, deadline_seconds=_OPENING_SECONDS) as video:
        return video.info.duration_seconds


def _band(duration_seconds: float, bounds: Sequence[float]) -> str:
    place = bisect_left(bounds, duration_seconds)
    lower = bounds[place - 1] if place else 0.0
    return f"{lower:g}-{bounds[place]:g} s" if place < len(bounds) else f"above {lower:g} s"


def _balanced(bands: Mapping[int, str], seed: int) -> dict[int, str]:
    """As many members of each band at most as the median band has, in their old order."""
    members: dict[str, list[int]] = defaultdict(list)
    for number, band in bands.items():
        members[band].append(number)
    most = median_low(map(len, members.values())) if members else 0
    rng = random.Random(seed)
    chosen = {n for band in sorted(members) for n in rng.sample(members[band], min(most, len(members[band])))}
    return {number: band for number, band in bands.items() if number in chosen}
