"""Rows of a GRPO run: what they hold, what their prompts take of the run's limits, and whether their videos decode."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.core.check import Check, Status
from verl_video_tools.core.clips import read_clip
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.pages import page
from verl_video_tools.core.types import Method, Retriever, RolloutLimits, Sample
from verl_video_tools.data.validate import CHECKED_COLUMNS, RowChecker, RowMethods
from verl_video_tools.dry_run.first_frames import Prompt, PromptMeter, decode_rows, measure_rows, turn_tokens
from verl_video_tools.dry_run.row_report import counted, problems_in_words
from verl_video_tools.dry_run.sampled import SampledRows, files_of, sample_rows
from verl_video_tools.methods import method_names
from verl_video_tools.verl_plugin.planned_run import RunModel
from verl_video_tools.verl_plugin.row_check import check_agent_names
from verl_video_tools.verl_plugin.settings import (
    check_media,
    group_methods,
    judge_config,
    method_from_config,
    plain_dict,
)

OPEN_SECONDS = {"training": 20.0, "validation": 5.0}
"""Time in which videos are opened and prompts measured; rows whose turn does not come are not."""
DECODE_SECONDS = {"training": 12.0, "validation": 3.0}
"""Time in which frames are decoded then; rows whose turn does not come are only opened."""

_NO_LIMIT = 1 << 30


class GrpoRows:
    """Checks the rows of `data.train_files` and `data.val_files`.

    Args:
        config: of the run.
        num_rows: rows of each that are looked at.
    """

    def __init__(self, config: DictConfig, num_rows: int) -> None:
        self._config = config
        self._rollout = config.actor_rollout_ref.rollout
        self._num_rows = num_rows
        self._default = self._rollout.agent.get("default_agent_loop")
        fields = plain_dict(OmegaConf.select(self._rollout, "custom.video_tools"))
        settings = {
            f"{name}.{field}": value
            for name, section in fields.items()
            if name in method_names()
            for field, value in (section or {}).items()
        }
        self._methods = RowMethods(self._default, settings)
        self._validates = bool(
            config.trainer.test_freq > 0 or config.trainer.get("val_before_train") or config.trainer.get("val_only")
        )

    def splits(self) -> dict[str, tuple[str, ...]]:
        """Files of rows by what they are for. verl reads a validation file in any run, also where none is measured."""
        train, validation = files_of(self._config.data.train_files), files_of(self._config.data.val_files)
        return {"training": train} | ({"validation": validation} if validation != train else {})

    def read(self, split: str) -> SampledRows:
        """Rows of a split. Raises UsageError or RowError where there are none to be read."""
        return sample_rows(self.splits()[split], self._num_rows, CHECKED_COLUMNS)

    def check_loops(self, rows: SampledRows) -> None:
        """Whether the agent loops that the rows name, and the services that these need, are there.

        Raises:
            UsageError: one is not.
        """
        check_agent_names(rows.agent_names or {self._default}, self._config)

    # -------------------------------------------------------------------------------------------------- without a model

    def problems(self, split: str, rows: SampledRows) -> dict[str, list[str]]:
        """What is wrong with fields, files and truths, by the label of the row."""
        checker = RowChecker(self._methods, judge=judge_config(self._config), validation=split == "validation")
        problems: dict[str, list[str]] = {}
        for number, row in rows.rows:
            found = checker.report(number, row).problems
            if not found:
                try:
                    if method := self._methods.of(row.get("agent_name")):
                        check_media(method, Sample.from_row(row))
                except (RowError, UsageError) as error:
                    found = (str(error),)
            if found:
                problems[rows.label(number)] = list(found)
        return problems

    def check_contents(self, split: str, rows: SampledRows, problems: Mapping[str, Sequence[str]]) -> Iterator[Check]:
        """Whether the rows can be used, fill a batch, and name files that every process finds."""
        looked_at = f"{len(rows.rows):,} of {rows.num_rows:,} looked at"
        group, name = "rows", f"{split} rows"
        if problems:
            fix = " && ".join(f"vvt data validate {file} --out good.parquet" for file in rows.files)
            if self._lacks_judge(rows):
                fix = f"video_tools.judge.base_url=URL for open questions ({page('judge')}); for the rest {fix}"
            detail = f"{counted(len(problems))} cannot be used: {problems_in_words(problems)}"
            yield Check(group, name, self._status(split), looked_at, detail, fix)
        else:
            yield Check(group, name, Status.OK, looked_at)
        if split == "training" and rows.num_rows < (batch := int(self._config.data.train_batch_size)):
            detail = f"{counted(rows.num_rows)} cannot fill one batch of {batch}"
            yield Check(
                group,
                "batch",
                Status.FAILED,
                detail=detail,
                fix="data.train_batch_size of at most as many, or more rows",
            )
        if relative := [label for label, sample in self._samples(rows) if _has_relative_path(sample)]:
            spread = int(self._config.trainer.nnodes) > 1 or os.environ.get("RAY_ADDRESS", "local") != "local"
            detail = f"{counted(len(relative))} ({relative[0]} first); they are looked up in the folder of each process"
            status = Status.FAILED if spread else Status.WARNING
            yield Check(
                group,
                f"{split}: relative paths",
                status,
                detail=detail,
                fix="write absolute paths of videos and images",
            )

    def _lacks_judge(self, rows: SampledRows) -> bool:
        if judge_config(self._config) is not None:
            return False
        return any(sample.question_type == "open" for _, sample in self._samples(rows))

    def usable(self, rows: SampledRows, problems: Mapping[str, object]) -> list[tuple[int, Mapping[str, Any]]]:
        """The rows whose prompts can be measured: of our methods, and without a problem."""
        return [
            (number, row)
            for number, row in rows.rows
            if rows.label(number) not in problems and (row.get("agent_name") or self._default) in method_names()
        ]

    def _status(self, split: str) -> Status:
        """Of rows that cannot be used: in a run that measures nothing, validation rows are only read."""
        return Status.FAILED if split == "training" or self._validates else Status.WARNING

    def _samples(self, rows: SampledRows) -> Iterator[tuple[str, Sample]]:
        for number, row in rows.rows:
            try:
                yield rows.label(number), Sample.from_row(row)
            except (RowError, TypeError, ValueError):
                continue  # told among the problems

    # ----------------------------------------------------------------------------------------------------- with a model

    @property
    def limits(self) -> RolloutLimits:
        """Of one rollout, as the run configures them."""
        images = self._rollout.get("limit_images")
        return RolloutLimits(
            int(self._rollout.prompt_length),
            int(self._rollout.response_length),
            _NO_LIMIT if images is None else int(images),
        )

    async def measure(
        self, split: str, rows: Sequence[tuple[int, Mapping[str, Any]]], model: RunModel, retriever: Retriever | None
    ) -> list[Prompt]:
        """Open the videos and count the tokens of each prompt, then decode first frames, as far as time allows."""
        meter = PromptMeter(model, self.limits, retriever)
        group_of = partial(self._group, validate=split == "validation")

        prompts = await measure_rows(meter, rows, group_of, OPEN_SECONDS[split])
        good = [prompt for prompt in prompts if not prompt.problem]
        decoded = {prompt.number: prompt for prompt in await decode_rows(meter, good, DECODE_SECONDS[split])}
        return [decoded.get(prompt.number, prompt) for prompt in prompts]

    def check_prompts(
        self, split: str, rows: SampledRows, prompts: Sequence[Prompt], model: RunModel
    ) -> Iterator[Check]:
        """What the prompts take of the limits."""
        group, limits = "rows", self.limits
        problems = {rows.label(prompt.number): [prompt.problem] for prompt in prompts if prompt.problem}
        name = f"{split} prompts"
        counts = sorted(prompt.tokens for prompt in prompts if prompt.tokens)
        images = max((prompt.images for prompt in prompts), default=0)
        found = ""
        if counts:
            found = (
                f"{median(counts):,.0f} tokens in the median, {counts[-1]:,} at most, of {limits.prompt_tokens:,}; "
                f"{images:,} images at most{'' if limits.images == _NO_LIMIT else f', of {limits.images:,}'}"
            )
        if problems:
            fix = f"a larger data.max_prompt_length, fewer frames, or {self._filter(rows, model)}"
            detail = f"{counted(len(problems))} would be left out of {split}: {problems_in_words(problems)}"
            yield Check(group, name, self._status(split), found, detail, fix)
        elif counts:
            yield Check(group, name, Status.OK, found)
        decoded = [prompt.decode_seconds for prompt in prompts if prompt.decode_seconds is not None]
        if decoded:
            yield Check(
                group,
                f"{split} videos",
                Status.OK,
                f"{counted(len(prompts) - len(problems))} opened in time, first frames of {len(decoded):,} decoded",
                f"{median(decoded):.2f} s a row in the median",
            )
        fewest = min((prompt.calls for prompt in prompts if prompt.calls is not None), default=None)
        if fewest is None:
            return
        turns = f"with turns of {turn_tokens(limits)} tokens"
        if fewest == 0:
            fix = "a larger data.max_response_length, or a smaller call (--set in `vvt budget`)"
            detail = f"no call of the largest size fits the response of {limits.response_tokens:,} tokens, {turns}"
            yield Check(group, f"{split} calls", Status.WARNING, detail=detail, fix=fix)
        else:
            yield Check(group, f"{split} calls", Status.OK, f"at least {fewest} of the largest size fit", turns)

    def _filter(self, rows: SampledRows, model: RunModel) -> str:
        """The command that leaves rows out which this run would leave out."""
        envelope, limits = model.tokens.envelope, self.limits
        images = "" if limits.images == _NO_LIMIT else f" --max-images {limits.images}"
        return (
            f"vvt data validate {rows.files[0]} --processor {model.source} --min-pixels {envelope.min_pixels} "
            f"--max-pixels {envelope.max_pixels} --max-prompt-length {limits.prompt_tokens}{images} --out good.parquet"
        )

    def _group(self, agent_name: str | None, *, validate: bool) -> Sequence[Method]:
        method = method_from_config(agent_name or self._default, self._rollout)
        return group_methods(method, self._rollout, validate)


def _has_relative_path(sample: Sample) -> bool:
    files = [read_clip(path).file for path in sample.videos] + list(sample.image_paths)
    return any(not os.path.isabs(file) for file in files)
