"""Rows of a fine-tuning run: whether their turns replay on their videos, and how long the sequences are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from omegaconf import DictConfig

from verl_video_tools.core.check import Check, Status, one_line
from verl_video_tools.core.errors import VideoToolsError
from verl_video_tools.core.pages import page
from verl_video_tools.dry_run.row_report import counted, problems_in_words
from verl_video_tools.dry_run.sampled import files_of
from verl_video_tools.verl_plugin.planned_run import RunModel
from verl_video_tools.verl_plugin.settings import plain_dict
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

ENCODE_SECONDS = 35.0
"""Time in which rows are encoded; those whose turn does not come are not looked at."""


def check_sft_rows(config: DictConfig, model: RunModel, num_rows: int) -> Iterator[Check]:
    """Encode rows as training does: decode their frames, execute their calls, count their tokens.

    Args:
        num_rows: rows that are looked at, spread evenly over the files.
    """
    data = config.data
    if data.custom_cls.name != TrajectorySFTDataset.__name__:
        yield Check("rows", "training rows", Status.SKIPPED, str(data.custom_cls.name), "not our data set")
        return
    options = {**plain_dict(data), "truncation": "error", "trajectory_cache_mib": 0}  # `skip` would encode every row
    files = list(files_of(data.train_files))
    fix = f"vvt data export-sft writes such rows; {page('cold-start')} says what they hold"
    try:
        dataset = TrajectorySFTDataset(files, model.tokens.tokenizer, options, model.processor)
    except (VideoToolsError, OSError, ValueError, KeyError, TypeError) as error:
        yield Check("rows", "training rows", Status.FAILED, ", ".join(files), one_line(error), fix)
        return
    total = len(dataset)
    wanted = range(total) if num_rows >= total else [index * total // num_rows for index in range(num_rows)]
    lengths: dict[int, int] = {}
    problems: dict[str, list[str]] = {}
    started = time.monotonic()
    for index in wanted:
        if lengths and time.monotonic() - started > ENCODE_SECONDS:
            break
        try:
            lengths[index] = len(dataset.stream(index).ids)
        except (VideoToolsError, ValueError, KeyError, TypeError) as error:
            problems[f"row {index}"] = [one_line(error)]
    seconds = time.monotonic() - started
    found = f"{len(lengths) + len(problems):,} of {total:,} encoded in {seconds:.1f} s"
    if problems:
        detail = f"{counted(len(problems))} cannot be replayed: {problems_in_words(problems)}"
        yield Check("rows", "training rows", Status.FAILED, found, detail, fix)
    else:
        yield Check("rows", "training rows", Status.OK, found)
    if lengths:
        yield _check_lengths(lengths, int(data.max_length), data.truncation)
    if relative := [index for index in wanted if _has_relative_path(dataset.rows[index])]:
        spread = int(config.trainer.nnodes) > 1
        detail = f"{counted(len(relative))} (row {relative[0]} first); they are looked up in the folder of each process"
        status = Status.FAILED if spread else Status.WARNING
        yield Check("rows", "relative paths", status, detail=detail, fix="write absolute paths of videos and images")


def _check_lengths(lengths: Mapping[int, int], max_length: int, truncation: str) -> Check:
    found = (
        f"{median(lengths.values()):,.0f} tokens in the median, {max(lengths.values()):,} at most, of {max_length:,}"
    )
    long = [index for index, length in lengths.items() if length > max_length]
    if not long:
        return Check("rows", "sequences", Status.OK, found)
    named = ", ".join(f"row {index} ({lengths[index]:,})" for index in long[:3])
    detail = f"{counted(len(long))} too long: {named}"
    if truncation == "skip":
        return Check("rows", "sequences", Status.WARNING, found, f"{detail}; they are left out (data.truncation=skip)")
    return Check(
        "rows",
        "sequences",
        Status.FAILED,
        found,
        detail,
        f"data.max_length={max(lengths.values())}, or data.truncation=skip",
    )


def _has_relative_path(row: Mapping[str, Any]) -> bool:
    extra = row.get("extra_info") or {}
    paths = [extra.get("video_path"), *(extra.get("image_paths") or ())]
    return any(isinstance(path, str) and not path.startswith("/") for path in paths)
