"""Checks rows before a run meets them: fields, files, the truth by the grader itself, and what a prompt costs.

Nothing is decoded. A bad row is reported with all of its problems, and the others are checked all the same.
"""

from __future__ import annotations

import math
import os
import string
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from verl_video_tools.core.errors import RowError, UsageError, VideoError, VideoToolsError
from verl_video_tools.core.machine import page
from verl_video_tools.core.sample import check_question, read_clip
from verl_video_tools.core.truths import plain_text
from verl_video_tools.core.types import AnswerLabel, Method, Sample, VideoInfo
from verl_video_tools.data.append import Progress, no_progress
from verl_video_tools.data.formats.entries import without_letters
from verl_video_tools.data.parquet import count_rows, read_schema, row_batches, row_writer
from verl_video_tools.data.picture_rows import is_picture_row, picture_faults, turns_fault, weights_of_turns
from verl_video_tools.data.rows import RowMethods
from verl_video_tools.data.stock_rows import AGENT_NAME
from verl_video_tools.grading.answers import decided_by_rule
from verl_video_tools.methods import get_method, method_names
from verl_video_tools.rollout.cost import GROUP_SIZE, planned_images
from verl_video_tools.rollout.observation import prompt_messages
from verl_video_tools.rollout.tokens import ModelTokens
from verl_video_tools.services.config import JudgeConfig
from verl_video_tools.video.isolated import IsolatedOpener

CHECKED_COLUMNS = ("data_source", "agent_name", "prompt", "reward_model", "extra_info", "turns", "turn_weights")

_ANY_JUDGE = JudgeConfig()
"""The judge is the run's to configure."""

_END_TOLERANCE_SECONDS = 1.0
"""Annotated segments are often rounded up to whole seconds."""


@dataclass(frozen=True, slots=True)
class PromptCost:
    """What a rollout's prompt, initial frames included, costs, and what is reserved for it."""

    tokens: int
    images: int
    max_tokens: int
    max_images: int


@dataclass(frozen=True, slots=True)
class RowReport:
    """What was found about one row; it is good if there are no problems.

    Attributes:
        number: place of the row in its file, from 0.
        truth: as graders compare it (`core.truths`); None where the row cannot be read.
        cost: None where it was not asked for, or is unknown.
    """

    number: int
    problems: tuple[str, ...]
    truth: str | None = None
    cost: PromptCost | None = None


class PromptCosts:
    """Counts the tokens of prompts.

    Args:
        model: whose tokens.
        methods: of the rows.
        max_tokens, max_images: that the run reserves for a prompt; None: what the method's recipe does.
    """

    def __init__(
        self, model: ModelTokens, methods: RowMethods, max_tokens: int | None = None, max_images: int | None = None
    ) -> None:
        self._model = model
        self._methods = methods
        self._max_tokens = max_tokens
        self._max_images = max_images

    def of(self, sample: Sample, agent_name: str | None, info: VideoInfo) -> PromptCost:
        """The most expensive prompt of a group on this row.

        Raises:
            UsageError: no method is named, or not one of ours.
            VideoToolsError: the method cannot ask this question.
        """
        method = self._methods.of(agent_name)
        if method is None:
            raise UsageError("the row names no method, so its prompt is unknown; give --method")
        group = [method.for_session(session_id, GROUP_SIZE, validate=False) for session_id in range(GROUP_SIZE)]
        members = {id(member): member for member in group}.values()
        return max((self._of(member, sample, info) for member in members), key=lambda cost: cost.tokens)

    def _of(self, method: Method, sample: Sample, info: VideoInfo) -> PromptCost:
        plan = method.plan_initial_frames(info, sample, self._model.envelope)
        messages = prompt_messages(method, sample, [info], planned_images(plan, info))
        budget = method.recipe_budget
        max_tokens = budget.prompt_tokens if self._max_tokens is None else self._max_tokens
        max_images = budget.images if self._max_images is None else self._max_images
        return PromptCost(self._model.counter.prompt(messages), len(plan), max_tokens, max_images)


# ---------------------------------------------------------------------------------------------------------- whole files


def validate_file(
    source: Path,
    *,
    methods: RowMethods | None = None,
    out: Path | None = None,
    videos: Mapping[str, VideoInfo | str] | None = None,
    costs: PromptCosts | None = None,
) -> Iterator[RowReport]:
    """Check all rows of a file, a report for each in their order.

    Args:
        methods: each is asked whether a row's truth can be earned (`Method.check_gradable`); by default with its own
            defaults.
        out: file that gets the good rows, with all their columns; it appears once all are checked.
        videos: facts about the rows' files by path, or what is wrong with them, as `probe_videos` gives them; None: it
            is only looked whether they exist.
        costs: compares prompts with what is reserved for them; needs `videos`.

    Raises:
        RowError: `source` has no rows.
        UsageError: `source` cannot be read or `out` not written.
    """
    if not count_rows(source):  # whatever wrote it failed, though no row is bad
        raise RowError(f"{source} has no rows; {page('rows')} describes what a file of rows holds")
    methods = methods or RowMethods()
    number = 0
    with ExitStack() as stack:
        writer = None if out is None else stack.enter_context(row_writer(out, read_schema(source)))
        for batch in row_batches(source, CHECKED_COLUMNS if writer is None else None):
            columns = [name for name in CHECKED_COLUMNS if name in batch.schema.names]
            good = []
            for row in batch.select(columns).to_pylist():
                report = row_report(number, row, methods, videos, costs)
                good.append(not report.problems)
                number += 1
                yield report
            if writer is not None:
                writer.write_batch(batch.filter(pa.array(good, pa.bool_())))


def probe_videos(
    source: Path, jobs: int, deadline_seconds: float, progress: Progress = no_progress
) -> dict[str, VideoInfo | str]:
    """Facts about each video of a file of rows, or why it cannot be read, by the path as the rows write it; missing
    files are left out.

    Args:
        jobs: videos that are opened at a time.
        deadline_seconds: to open one.
        progress: called with the number of files done and of all.

    Raises:
        UsageError: `source` cannot be read.
    """
    rows = (row for batch in row_batches(source, ("extra_info",)) for row in batch.to_pylist())
    named = dict.fromkeys(path for row in rows if (path := _video_path(row)) is not None)
    paths = [path for path in named if read_clip(path).why_missing() is None]

    openers: SimpleQueue[IsolatedOpener] = SimpleQueue()
    for _ in range(jobs):
        openers.put(IsolatedOpener())

    def opened(path: str) -> VideoInfo | str:
        opener = openers.get()
        try:
            return opener.info(path, deadline_seconds)
        except VideoError as error:
            return str(error)
        finally:
            openers.put(opener)

    facts: dict[str, VideoInfo | str] = {}
    executor = ThreadPoolExecutor(jobs)
    try:
        for path, fact in zip(paths, executor.map(opened, paths), strict=True):
            facts[path] = fact
            progress(len(facts), len(paths))
    finally:
        executor.shutdown(cancel_futures=True)  # where the user stops it, videos that wait are not opened
        for _ in range(jobs):
            openers.get().close()
    return facts


def _video_path(row: Mapping[str, Any]) -> str | None:
    extra_info = row.get("extra_info")
    path = extra_info.get("video_path") if isinstance(extra_info, Mapping) else None
    return path if isinstance(path, str) else None


# -------------------------------------------------------------------------------------------------------------- one row


def row_report(
    number: int,
    row: Mapping[str, Any],
    methods: RowMethods,
    videos: Mapping[str, VideoInfo | str] | None = None,
    costs: PromptCosts | None = None,
) -> RowReport:
    """All that is wrong with a row; the arguments are as of `validate_file`."""
    problems = list(_column_problems(row))
    name = row.get("agent_name")
    if is_picture_row(row) and row.get("turns"):
        defaults = get_method(name) if name in method_names() else None
        return RowReport(number, (*problems, *picture_faults(row, defaults)))
    try:
        sample = Sample.from_row(row)
    except (RowError, TypeError, ValueError, IndexError, AttributeError) as error:
        return RowReport(number, (*problems, f"the row is invalid: {error}"))
    method = methods.of(name)
    if (
        (turns := row.get("turns"))
        and method is not None
        and (fault := turns_fault(turns, method, takes_malformed=True))
    ):
        problems.append(fault)
    problems += _question_problems(sample, method)
    problems += _media_problems(sample, method)
    # The first of several videos says nothing about the whole prompt, nor about a segment.
    info = None if sample.more_video_paths else (videos or {}).get(sample.video_path)
    if isinstance(info, str):
        problems.append(info)
        info = None
    elif info is not None and info.missing_bytes:
        problems.append(
            f"the video ends after {info.duration_seconds:.1f} s, but the file lacks {info.missing_bytes} bytes at its "
            f"end; download it again: {sample.video_path}"
        )
    problems += _segment_problems(sample, info)
    cost = None
    if costs is not None and info is not None and not problems:
        try:
            cost = costs.of(sample, name, info)
            problems += _cost_problems(cost)
        except VideoToolsError as error:
            problems.append(str(error))
    return RowReport(number, tuple(problems), sample.ground_truth, cost)


def _media_problems(sample: Sample, method: Method | None) -> Iterator[str]:
    """What is wrong with videos and images; their content is not checked."""
    yield from filter(None, (read_clip(path).why_missing() for path in sample.videos))
    yield from (f"no such image file: {path}" for path in sample.image_paths if not os.path.isfile(path))
    if method is None:
        return
    if sample.more_video_paths and not method.asks_about_several_videos:
        yield f"{method.name} does not ask about several videos"
    if not sample.video_path:
        try:
            method.picture_prompt(sample.question, ())
        except UsageError as error:
            yield str(error)


def _column_problems(row: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(row.get("data_source"), str) or not row["data_source"]:
        yield "data_source is missing or empty"
    agent_name = row.get("agent_name")
    if "agent_name" in row and agent_name not in (*method_names(), AGENT_NAME):
        yield f"agent_name {agent_name!r} is no method; there are: {', '.join(method_names())}"
    prompt = row.get("prompt")
    if not isinstance(prompt, Sequence) or not prompt or not all(map(_is_message, prompt)):
        yield "prompt must be a list of chat messages with role and content; verl wants the column"
    if row.get("turn_weights") is not None:
        try:
            weights_of_turns(row)
        except RowError as error:
            yield str(error)


def _is_message(message: Any) -> bool:
    return isinstance(message, Mapping) and all(isinstance(message.get(name), str) for name in ("role", "content"))


def _question_problems(sample: Sample, method: Method | None) -> Iterator[str]:
    """What is wrong with question, options and truth. The last word have the row's method, which must be able to pay
    for the truth, and the grader, which must find it right."""
    if not sample.ground_truth.strip():
        yield "reward_model.ground_truth is empty"
        return
    if sample.question_type == "mc":
        question = plain_text(sample.question)
        for letter, option in zip(string.ascii_uppercase, without_letters(sample.options), strict=False):
            if plain_text(option) not in question:
                yield f"the question does not tell option {letter}, {option!r:.80}"
    try:
        if method is None:
            check_question(sample, _ANY_JUDGE)
        else:
            method.check_gradable(sample, _ANY_JUDGE)
        label = decided_by_rule(sample.ground_truth, sample)
    except ValueError as error:
        yield str(error)
        return
    if label is not AnswerLabel.CORRECT:
        yield f"the grader does not find the truth {sample.ground_truth!r:.80} right; options: {len(sample.options)}"


def _segment_problems(sample: Sample, info: VideoInfo | None) -> Iterator[str]:
    if sample.video_segment_seconds is None:
        return
    start, end = sample.video_segment_seconds
    if not (math.isfinite(start) and math.isfinite(end) and 0.0 <= start < end):
        yield f"video_segment must be [start, end] in seconds with 0 <= start < end, got [{start:g}, {end:g}]"
    elif info is not None and end > info.duration_seconds + _END_TOLERANCE_SECONDS:
        yield f"video_segment ends at {end:g} s, the video at {info.duration_seconds:.1f} s"


def _cost_problems(cost: PromptCost) -> Iterator[str]:
    if cost.tokens > cost.max_tokens:
        yield f"the prompt takes {cost.tokens} tokens, the run reserves {cost.max_tokens}"
    if cost.images > cost.max_images:
        yield f"the prompt takes {cost.images} images, the run allows {cost.max_images}"
