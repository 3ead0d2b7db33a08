"""Filters: rows of balanced length that are neither too easy nor too hard (LongVT), and dialogues whose reasoning is
sound as another model sees it (FrameThinker)."""

from __future__ import annotations

import json
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_low
from typing import Any

from verl_video_tools.core.errors import EndpointError, UsageError
from verl_video_tools.core.json_text import json_objects
from verl_video_tools.core.prompts import read_prompt
from verl_video_tools.core.reasoning import without_reasoning
from verl_video_tools.core.sample import all_media_of
from verl_video_tools.core.types import StopReason, Trajectory
from verl_video_tools.data.append import Progress, append_record, appended, no_progress, work_through
from verl_video_tools.data.export_rollouts import ExportReport
from verl_video_tools.data.parquet import read_column, read_table, write_table
from verl_video_tools.records.records import read_records
from verl_video_tools.services.config import EndpointConfig
from verl_video_tools.services.endpoint import Completion, EndpointClient, UnusableReply
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
    chosen: list[int] = []
    for number, band in bands.items():
        reason = None if pass_rates is None else _TOO_EASY_OR_HARD.get(pass_rates[_key(questions[number])])
        if reason is not None:
            report.dropped[reason] += 1
        else:
            chosen.append(number)
            report.kept[band] += 1
    if not chosen:
        raise UsageError(f"{in_parquet}: no row is left: {report}")
    write_table(table.take(chosen), out_parquet)
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


# ------------------------------------------------------------------------------------------------------------ reasoning

RecordKey = tuple[int, str, int]
"""What a record is known by: `step`, `uid` and `session_id`."""


@dataclass
class LogicSummary:
    """What became of the records of a file.

    Attributes:
        verdicts: `consistent` and `reason`, by dialogue.
        failed: dialogues without a verdict, with the failure; the next run asks again.
        left_out: dialogues that were not asked about: flagged, unanswered, wrong, or of another form than was wanted.
    """

    verdicts: dict[RecordKey, Mapping[str, Any]] = field(default_factory=dict)
    failed: dict[RecordKey, str] = field(default_factory=dict)
    left_out: int = 0

    @property
    def rejected(self) -> dict[RecordKey, str]:
        """Dialogues that the model did not find sound, with its reason."""
        return {key: str(each["reason"]) for key, each in self.verdicts.items() if not each["consistent"]}

    def __str__(self) -> str:
        num_rejected = len(self.rejected)
        return (
            f"{len(self.verdicts) - num_rejected} dialogues sound, {num_rejected} rejected, {len(self.failed)} without "
            f"a verdict; {self.left_out} others not asked about"
        )


def record_key(record: Mapping[str, Any]) -> RecordKey:
    return int(record["step"]), str(record["uid"]), int(record["session_id"])


async def check_logic(
    records: str | Path,
    out: str | Path,
    config: EndpointConfig,
    *,
    progress: Progress = no_progress,
) -> LogicSummary:
    """Ask about each right dialogue of `records` that `out` does not hold yet, and append it with the verdict.

    A line of `out` is the record with an entry `logic`: `consistent`, `reason` and `model`.

    Args:
        records: a file of records, or the folder of a training run.
        progress: called before the first dialogue and after each, with the number done and wanted.

    Raises:
        UsageError: the records cannot be read, or `out` is no such file.
        EndpointError: the endpoint cannot be reached, or lists no model where none was named.
    """
    prompt = read_prompt(__package__, "logic_prompt.txt", None)
    # Of a dialogue that was made again the last record counts.
    lines = {record_key(line): line for line in read_records(Path(records), must_exist=True)}
    candidates = {key: line for key, line in lines.items() if _is_candidate(line)}
    summary = LogicSummary(left_out=len(lines) - len(candidates))
    models = set[str]()
    with appended(Path(out)) as file:
        for line in read_records(Path(out)):
            _check_verdict(line, lines, Path(out))
            models.add(line["logic"]["model"])
            summary.verdicts[record_key(line)] = line["logic"]
        left = [line for key, line in candidates.items() if key not in summary.verdicts]
        num_done = len(candidates) - len(left)
        progress(num_done, len(candidates))
        if not left:
            return summary
        async with EndpointClient(config) as client:
            await client.check_reachable()
            model = config.model or (await client.served_models())[0]
            if others := models - {model}:
                raise UsageError(
                    f"{out} holds verdicts of {min(others)!r}, not of {model!r}; give another file to write"
                )

            async def check(line: dict[str, Any]) -> None:
                try:
                    verdict = await _verdict(client, prompt, line["trajectory"])
                except EndpointError as error:
                    summary.failed[record_key(line)] = str(error)
                    return
                append_record(file, {**line, "trajectory": line["trajectory"].to_dict(), "logic": verdict})
                summary.verdicts[record_key(line)] = verdict

            await work_through(left, check, config.concurrency, progress, num_done=num_done)
    return summary


def _check_verdict(line: Mapping[str, Any], lines: Mapping[RecordKey, Mapping[str, Any]], out: Path) -> None:
    """Raises UsageError for a line of `out` that says nothing about these records."""
    if "logic" not in line:
        raise UsageError(f"{out} holds records without a verdict; give another file to write")
    current = lines.get(record_key(line))
    if current is not None and current["trajectory"].to_dict() != line["trajectory"].to_dict():
        raise UsageError(
            f"{out} holds a verdict on another dialogue as {record_key(line)}; give the records that it was made from, "
            "or another file to write"
        )


def _is_candidate(record: Mapping[str, Any]) -> bool:
    trajectory: Trajectory = record["trajectory"]
    is_right = trajectory.stop_reason is StopReason.ANSWER and record["reward"]["acc"] > 0.0
    return is_right and not trajectory.flags and not record.get("template_fault")


async def _verdict(client: EndpointClient, prompt: str, trajectory: Trajectory) -> dict[str, Any]:
    """The model's verdict on one dialogue. Raises EndpointError if there is none."""
    dialogue = {
        "question": trajectory.question,
        "frames_shown_first": trajectory.initial_frame_indices(),
        "turns": [{"said": turn.text, "reply": turn.observation} for turn in trajectory.turns],
    }
    messages = [
        {"role": "system", "content": prompt},
        {"role": "user", "content": json.dumps(dialogue, ensure_ascii=False)},
    ]
    verdict = await client.complete({"messages": messages, "temperature": 0.0}, _read_verdict)
    return {**verdict, "model": await client.model()}


def _read_verdict(completion: Completion) -> dict[str, Any]:
    verdicts = [
        entry for entry in json_objects(without_reasoning(completion.text)) if isinstance(entry.get("consistent"), bool)
    ]
    if len({entry["consistent"] for entry in verdicts}) != 1:
        raise UnusableReply(
            f"the reply holds no verdict: {completion.text[:200]!r}",
            'That cannot be read. Reply with one JSON object: {"consistent": true or false, "reason": "..."}',
        )
    return {"consistent": verdicts[-1]["consistent"], "reason": str(verdicts[-1].get("reason", ""))}
