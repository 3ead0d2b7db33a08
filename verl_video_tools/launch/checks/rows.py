"""A sample of a run's rows: whether they can be graded, name files that exist, and fit the run's limits.

A prompt is made by the `Episode` of a rollout, whose budget is checked before anything is decoded.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

import pyarrow as pa
from omegaconf import OmegaConf

from verl_video_tools.core.errors import RowError, UsageError, VideoToolsError
from verl_video_tools.core.machine import page
from verl_video_tools.core.sample import all_media_of, read_clip
from verl_video_tools.core.types import Content, Message, Method, Sample, StopReason, content_images
from verl_video_tools.data.parquet import count_rows, row_batches
from verl_video_tools.launch.checks.report import Check, PlannedRun, Status, one_line
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.tokens import RolloutTokens, TokenBudget
from verl_video_tools.verl_plugin.model_tokens import RunModel
from verl_video_tools.verl_plugin.run_checks import (
    CHECKED_COLUMNS,
    check_agent_names,
    check_batch,
    checked_method,
    row_fault,
    row_method_name,
    validates,
)
from verl_video_tools.verl_plugin.settings import group_methods, judge_config, max_images, plain_dict
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

_AT_ONCE = 8
"""Rows under way: their frames are held in memory, and a long video has hundreds."""
START_SECONDS = 2.0
"""Time in which the start of a run opens videos and measures prompts; rows whose turn does not come are not."""
DECODE_SECONDS, ENCODE_SECONDS = 30.0, 35.0
"""The same of a thorough check: to decode initial frames, or to encode rows of fine-tuning."""
_NUM_NAMED = 3
_OWN_LABEL = re.compile(r"row index=\S+ split=\S+: ")
"""With which errors of a row begin, whose place in its file is known here."""
_SFT_FIX = f"vvt data export-sft writes such rows; {page('cold-start')} says what they hold"


@dataclass(frozen=True)
class SampledRows:
    """Rows of one or several files.

    Attributes:
        num_rows: of all files.
        rows: some of them, evenly spaced, by their labels: the place in the file, and the file where there are several.
        agent_names: of all rows, as far as they name one.
    """

    num_rows: int
    rows: Mapping[str, Mapping[str, Any]]
    agent_names: frozenset[str]

    @property
    def summary(self) -> str:
        return f"{len(self.rows):,} of {self.num_rows:,} looked at"


def sample_rows(files: Sequence[str], max_rows: int, columns: Sequence[str] | None = None) -> SampledRows:
    """Read rows from first to last, evenly spaced.

    Args:
        num_wanted: rows to keep at most, at least 1.
        columns: those that are read; by default all.

    Raises:
        UsageError: a file cannot be read.
        RowError: there are no rows.
    """
    total = sum(map(count_rows, files))
    if not total:
        raise RowError(f"{', '.join(files)}: no rows")
    indices = {index * total // max_rows for index in range(max_rows)} if max_rows < total else set(range(total))
    rows: dict[str, Mapping[str, Any]] = {}
    names: set[str] = set()
    first = 0  # of the batch, counted over all files
    for file in files:
        start = first  # of the file
        for batch in row_batches(file, columns):
            if "agent_name" in batch.schema.names:
                names |= {name for name in batch.column("agent_name").unique().to_pylist() if isinstance(name, str)}
            here = [index for index in range(batch.num_rows) if first + index in indices]
            for index, row in zip(here, batch.take(pa.array(here, pa.int64())).to_pylist(), strict=True):
                place = f"row {first + index - start}"
                rows[place if len(files) == 1 else f"{file} {place}"] = row
            first += batch.num_rows
    return SampledRows(total, rows, frozenset(names))


def files_of(option: Any) -> tuple[str, ...]:
    """The files of `data.train_files` or `data.val_files`: one path, a list, or none."""
    if not option:
        return ()
    return (option,) if isinstance(option, str) else tuple(option)


# --------------------------------------------------------------------------------------- rows of reinforcement learning


def check_grpo_rows(run: PlannedRun) -> Iterator[Check]:
    """The rows of `data.train_files` and `data.val_files`. verl reads the latter in any run, also where none is
    measured."""
    data = run.config.data
    train, validation = files_of(data.train_files), files_of(data.val_files)
    for split, files in {"training": train, **({"validation": validation} if validation != train else {})}.items():
        if OmegaConf.select(data, "custom_cls.path") or not all(file.endswith(".parquet") for file in files):
            yield Check("rows", f"{split} rows", Status.SKIPPED, ", ".join(files), "not our format")
        else:
            yield from _check_split(run, split, files)


def _check_split(run: PlannedRun, split: str, files: Sequence[str]) -> Iterator[Check]:
    rollout, validate = run.config.actor_rollout_ref.rollout, split == "validation"
    judge = judge_config(run.config)
    try:
        sampled = sample_rows(files, run.num_rows, CHECKED_COLUMNS)
        check_agent_names(sampled.agent_names, run.config)
        if not validate:
            check_batch(sampled.num_rows, int(run.config.data.train_batch_size))
        names = {label: row_method_name(row, rollout) for label, row in sampled.rows.items()}
        methods = {name: checked_method(name, rollout, validate) for name in set(names.values()) if name is not None}
    except (UsageError, RowError) as error:
        name = "VAL_FILES" if validate else "TRAIN_FILES"
        fix = f"set {name} to a parquet file of rows ({page('rows')}), or do as the message says"
        yield Check("rows", f"{split} rows", Status.FAILED, detail=str(error), fix=fix)
        return
    method_of = {label: methods[name] for label, name in names.items() if name is not None}
    problems = {}
    for label, method in method_of.items():
        row = sampled.rows[label]
        if problem := row_fault(row, method, judge, validate=validate) or _missing_file(run, row):
            problems[label] = problem
    unjudged = [label for label in problems if judge is None and not validate and _is_open(sampled.rows[label])]
    problems |= dict.fromkeys(unjudged, "an open question needs a judge and none is configured")
    fix = " && ".join(f"vvt data validate {file} --out good.parquet" for file in files)
    if unjudged:
        fix = f"set video_tools.judge.base_url=URL for open questions ({page('judge')}); for the rest {fix}"
    num_rows = 0 if unjudged else len(sampled.rows)  # those of other agent loops are theirs to judge
    yield _verdict(run, f"{split} rows", sampled.summary, problems, num_rows, "cannot be used", fix)
    usable = {label: method for label, method in method_of.items() if label not in problems}
    if run.model is not None and usable:
        groups = {label: group_methods(method, rollout, validate) for label, method in usable.items()}
        yield _check_prompts(run, split, sampled.rows, groups)


def _check_prompts(
    run: PlannedRun, split: str, rows: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Sequence[Method]]
) -> Check:
    """Whether the prompts of rows fit the run's limits and, in a thorough check, their initial frames decode."""
    assert run.model is not None
    rollout = run.config.actor_rollout_ref.rollout
    meter = PromptMeter(
        run.model,
        int(rollout.prompt_length),
        int(rollout.response_length),
        max_images(rollout),
        decodes=run.thorough,
    )
    prompts = asyncio.run(measure_rows(meter, rows, groups, DECODE_SECONDS if run.thorough else START_SECONDS))
    longest, images = max(prompt.tokens for prompt in prompts.values()), max(p.images for p in prompts.values())
    problems = {label: prompt.problem for label, prompt in prompts.items() if prompt.problem}
    limits = f"data.max_prompt_length={longest}"
    if meter.max_images is not None and images > meter.max_images:
        limits += f" video_tools.max_images={images}"
    summary = f"{longest:,} tokens at most, of {meter.prompt_length:,}; {len(prompts):,} of {len(groups):,} rows"
    fix = f"set {limits}, show fewer frames, or leave such rows out: vvt data validate --help"
    return _verdict(run, f"{split} prompts", summary, problems, len(prompts), f"would be left out of {split}", fix)


def _is_open(row: Mapping[str, Any]) -> bool:
    try:
        return Sample.from_row(row).question_type == "open"
    except (RowError, TypeError, ValueError, LookupError, AttributeError):
        return False


# -------------------------------------------------------------------------------------------------- rows of fine-tuning


def check_sft_rows(run: PlannedRun) -> Iterator[Check]:
    """Whether rows of fine-tuning fill a batch and name files that exist."""
    files = files_of(run.config.data.train_files)
    if not _has_our_rows(run):
        yield Check("rows", "training rows", Status.SKIPPED, ", ".join(files), "not our data set")
        return
    try:
        sampled = sample_rows(files, run.num_rows, ("extra_info",))
        check_batch(sampled.num_rows, int(run.config.data.train_batch_size))
    except (UsageError, RowError) as error:
        yield Check("rows", "training rows", Status.FAILED, detail=str(error), fix=_SFT_FIX)
        return
    problems = {label: problem for label, row in sampled.rows.items() if (problem := _missing_file(run, row))}
    yield _verdict(run, "training rows", sampled.summary, problems, len(sampled.rows), "cannot be used", _SFT_FIX)


def check_sequences(run: PlannedRun) -> Iterator[Check]:
    """Encode rows as training does: decode their frames, execute their calls, count their tokens."""
    data = run.config.data
    if run.model is None or not _has_our_rows(run):
        return
    options = {**plain_dict(data), "truncation": "error", "trajectory_cache_mib": 0}  # `skip` would encode every row
    files, model = list(files_of(data.train_files)), run.model
    try:
        dataset = TrajectorySFTDataset(files, model.tokenizer, options, model.processor)
    except (VideoToolsError, OSError, ValueError, KeyError, TypeError) as error:
        yield Check("rows", "sequences", Status.FAILED, ", ".join(files), one_line(error), _SFT_FIX)
        return
    end, longest, problems = time.monotonic() + ENCODE_SECONDS, 0, {}
    encoded = 0
    num_rows = len(dataset.rows)
    for number in range(0, num_rows, max(1, num_rows // run.num_rows)):
        if encoded and time.monotonic() > end:
            break
        encoded += 1
        try:
            length = max(len(stream.ids) for stream in dataset.sequences(number))
        except (VideoToolsError, ValueError, KeyError, TypeError) as error:
            problems[f"row {number}"] = one_line(error)
            continue
        longest = max(longest, length)
        if length > int(data.max_length) and data.truncation != "skip":
            problems[f"row {number}"] = f"{length:,} tokens, the run allows {int(data.max_length):,}"
    summary = f"{encoded:,} of {num_rows:,} encoded; {longest:,} tokens at most, of {int(data.max_length):,}"
    fix = f"set data.max_length={longest} or data.truncation=skip for long rows; {_SFT_FIX}"
    yield _verdict(run, "sequences", summary, problems, encoded, "cannot be trained on", fix)


def _has_our_rows(run: PlannedRun) -> bool:
    return bool(run.config.data.custom_cls.name == TrajectorySFTDataset.__name__)


# --------------------------------------------------------------------------------------------------------------- common


def _missing_file(run: PlannedRun, row: Mapping[str, Any]) -> str:
    """What is wrong with the first file that a row names and that processes do not find; empty where they do."""
    for path in all_media_of(row.get("extra_info") or {}):
        clip = read_clip(path)
        if (missing := clip.why_missing("file")) is not None:
            return missing
        if run.uses_other_nodes and not os.path.isabs(file := clip.file):
            return f"{file} is a relative path, and other nodes run in other folders"
    return ""


def _verdict(
    run: PlannedRun, name: str, summary: str, problems: Mapping[str, str], num_rows: int, what: str, fix: str
) -> Check:
    """One check of rows. A run leaves out what it cannot use, so its start is refused only where no row is left of
    `num_rows`."""
    if not problems:
        return Check("rows", name, Status.OK, summary)
    labels_of: dict[str, list[str]] = {}
    for label, problem in problems.items():  # one is said once, with the rows that have it
        labels_of.setdefault(_OWN_LABEL.sub("", problem), []).append(label)
    shown = {problem: labels[:_NUM_NAMED] for problem, labels in islice(labels_of.items(), _NUM_NAMED)}
    named = [f"{', '.join(labels)}: {problem}" for problem, labels in shown.items()]
    if more := len(problems) - sum(map(len, shown.values())):
        named.append(f"and {more} others")
    rows = "1 row" if len(problems) == 1 else f"{len(problems)} rows"
    is_read_only = name.startswith("validation") and not validates(run.config)
    fails = (run.thorough or len(problems) >= num_rows) and not is_read_only
    status = Status.FAILED if fails else Status.WARNING
    return Check("rows", name, status, summary, f"{rows} {what}: {'; '.join(named)}", fix)


# --------------------------------------------------------------------------------------------- prompts and their frames


@dataclass(frozen=True)
class Prompt:
    """The most expensive prompt of a row's group; `problem` says why the run would leave the row out."""

    tokens: int = 0
    images: int = 0
    problem: str = ""


class _FirstFrames:
    """A retriever for selectors of initial frames: which frames they are changes no length."""

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        return list(candidates[:num_frames])


class _CountingBudget:
    """Notes what a prompt takes. Unless `decodes`, it ends the rollout before frames are decoded."""

    def __init__(self, budget: TokenBudget, decodes: bool) -> None:
        self._budget = budget
        self._decodes = decodes
        self.tokens = self.images = 0
        self.verdict: StopReason | None = None

    def refuses_prompt(self, messages: Sequence[Message]) -> StopReason | None:
        self.tokens = self._budget.tokens.counter.prompt(messages)
        self.images = sum(len(content_images(message.content)) for message in messages)
        self.verdict = self._budget.refuses_prompt(messages)
        return self.verdict if self._decodes or self.verdict else StopReason.PROMPT_BUDGET

    def refuses_observation(self, content: Content) -> StopReason | None:
        return self._budget.refuses_observation(content)


@dataclass(frozen=True)
class PromptMeter:
    """Measures the prompts of rows as a run with these limits would make them.

    Attributes:
        max_images: of a sequence; None: the engine has no limit.
        decodes: also decode the initial frames.
    """

    model: RunModel
    prompt_length: int
    response_length: int
    max_images: int | None
    decodes: bool = False

    async def measure(self, sample: Sample, group: Sequence[Method]) -> Prompt:
        """The most expensive prompt of a group, or one that does not fit."""
        try:
            members = list({id(method): method for method in group}.values())
            prompts = [await self._prompt(sample, member, decodes=False) for member in members]
            worst = max(range(len(members)), key=lambda place: (bool(prompts[place].problem), prompts[place].tokens))
            if self.decodes and not prompts[worst].problem:
                return await self._prompt(sample, members[worst], decodes=True)
            return prompts[worst]
        except VideoToolsError as error:
            return Prompt(problem=one_line(error))

    async def _prompt(self, sample: Sample, method: Method, *, decodes: bool) -> Prompt:
        tokens = RolloutTokens(self.model.counter, self.model.end_of_turn_id, method.context_policy())
        limits = self.prompt_length, self.response_length, self.max_images
        budget = _CountingBudget(TokenBudget(tokens, *limits), decodes)
        episode = Episode(method, sample, self.model.envelope, budget, _FirstFrames())
        has_started = await episode.start() is not None
        problem = ""
        if budget.verdict is StopReason.IMAGE_BUDGET:
            problem = f"the prompt has {budget.images:,} images, the run allows {self.max_images:,}"
        elif budget.verdict is not None:
            problem = f"the prompt takes {budget.tokens:,} tokens, the run allows {self.prompt_length:,}"
        elif not has_started and (decodes or not budget.tokens):
            problem = episode.trajectory.error or f"the rollout ends at once ({episode.trajectory.stop_reason})"
        return Prompt(budget.tokens, budget.images, problem)


async def measure_rows(
    meter: PromptMeter, rows: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Sequence[Method]], seconds: float
) -> dict[str, Prompt]:
    """The prompts of rows by their labels: of as many as can be started in a time, and of at least one.

    They start in random order, so that the omitted ones are spread over all.

    Args:
        rows: by their labels.
        groups: of the rows that are measured, the methods of a group.
    """
    gate, end = asyncio.Semaphore(_AT_ONCE), time.monotonic() + seconds
    order = Random(0).sample(list(groups), len(groups))
    prompts: dict[str, Prompt] = {}

    async def measure(label: str) -> None:
        async with gate:
            if label == order[0] or time.monotonic() < end:
                prompts[label] = await meter.measure(Sample.from_row(rows[label]), groups[label])

    await asyncio.gather(*map(measure, order))
    return {label: prompts[label] for label in groups if label in prompts}
