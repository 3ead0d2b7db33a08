"""All checks of a dry run in the order of its table."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_video_tools import __version__
from verl_video_tools.core.check import Check, Status, check_lines, one_line
from verl_video_tools.core.environment import list_gpus
from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.core.pages import page
from verl_video_tools.data.parquet import count_rows
from verl_video_tools.dry_run import disk, limits, machine, memory, services
from verl_video_tools.dry_run.first_frames import Prompt
from verl_video_tools.dry_run.grpo_rows import GrpoRows
from verl_video_tools.dry_run.model import load_model
from verl_video_tools.dry_run.sampled import SampledRows, files_of
from verl_video_tools.dry_run.sft_rows import check_sft_rows
from verl_video_tools.planner.composed import run_options
from verl_video_tools.planner.models import ModelShape, find_model
from verl_video_tools.planner.recipes import RunOptions
from verl_video_tools.verl_plugin.planned_run import Kind, RunModel, check_grpo_options, compose_run

_OPTIONS_FIX = f"correct the variable or the option that the message names ({page('training')})"


@dataclass(frozen=True)
class DryRun:
    """What is checked, and how.

    Attributes:
        kind: of training.
        overrides: options as verl's trainer gets them.
        device: `cpu` or `gpu`.
        num_rows: rows of a file that are looked at.
        stand_in: folder of the model whose tokenizer and processor stand for those of one that the recipe will train.
        gpu: kind of GPU to plan for; None: the one that is here.
    """

    kind: Kind
    overrides: Sequence[str]
    device: str
    num_rows: int = 100
    stand_in: str | None = None
    gpu: str | None = None

    @cached_property
    def gpus(self) -> list[str]:
        """Names of those that are here, where the run takes any."""
        return list_gpus() if self.device == "gpu" else []

    def checks(self) -> list[Check]:
        """Every check that can be made; one that another has made pointless is left out."""
        try:
            config = compose_run(self.kind, self.overrides)
        except UsageError as error:
            return [Check("configuration", "options", Status.FAILED, detail=str(error), fix=_OPTIONS_FIX)]
        found: list[Check] = []
        try:
            for check in self._grpo(config) if self.kind == "grpo" else self._sft(config):
                found.append(check)
        except Exception as error:  # what was found so far is worth more than a traceback alone
            traceback.print_exc()
            fix = "the rest was not checked; a traceback stands above the table"
            found.append(Check("dry run", "error", Status.FAILED, detail=one_line(error), fix=fix))
        return found

    def _grpo(self, config: DictConfig) -> Iterator[Check]:
        try:
            check_grpo_options(config)
        except UsageError as error:
            yield Check("configuration", "options", Status.FAILED, detail=str(error), fix=_OPTIONS_FIX)
            return
        yield self._options_accepted()
        yield from _guarded("configuration", limits.check_limits(config))
        yield from _guarded("configuration", limits.check_group(config))
        yield from _guarded("configuration", limits.check_pixels(config))
        model, found = load_model(
            config.actor_rollout_ref.model, limits.with_ordered_pixels(config.data), self.stand_in
        )
        yield from found
        retriever, found = services.load_retriever(config)
        rows, prompts = GrpoRows(config, self.num_rows), []
        num_rows = 0
        with asyncio.Runner() as runner:
            for split in rows.splits():
                sampled, found_rows = _read(partial(rows.read, split), split)
                yield from found_rows
                if sampled is None:
                    continue
                num_rows = sampled.num_rows if split == "training" else num_rows
                measured, found_rows = self._rows(split, sampled, rows, model, retriever, runner)
                yield from found_rows
                prompts += measured if split == "training" else []
            yield from _guarded("judge", services.check_judge(config))
            yield from found
            with_video = [prompt for prompt in prompts if prompt.info is not None and prompt.sample.video_path]
            if retriever is not None and with_video:
                yield runner.run(services.check_query(retriever, with_video[0]))
        yield from _guarded("tool model", services.check_tool_model(config))
        largest = max(with_video, key=lambda prompt: prompt.tokens, default=None)
        yield from self._memory_and_disk(config, model, largest, num_rows)
        yield from self._machine(config, config.actor_rollout_ref.model)

    def _options_accepted(self) -> Check:
        found = f"{len(self.overrides)} set by the recipe and the command line"
        return Check("configuration", "options", Status.OK, found)

    def _rows(
        self,
        split: str,
        sampled: SampledRows,
        rows: GrpoRows,
        model: RunModel | None,
        retriever: Any,
        runner: asyncio.Runner,
    ) -> tuple[list[Prompt], list[Check]]:
        """The prompts of a split, and what was found about its rows."""
        try:
            rows.check_loops(sampled)
            problems = rows.problems(split, sampled)
            checks = list(rows.check_contents(split, sampled, problems))
            if model is None:
                return [], checks
            prompts = runner.run(rows.measure(split, rows.usable(sampled, problems), model, retriever))
            return prompts, [*checks, *rows.check_prompts(split, sampled, prompts, model)]
        except UsageError as error:
            return [], [Check("rows", f"{split} rows", Status.FAILED, detail=str(error), fix=page("rows"))]

    def _sft(self, config: DictConfig) -> Iterator[Check]:
        yield self._options_accepted()
        yield from _guarded("configuration", limits.check_pixels(config))
        model, found = load_model(config.model, limits.with_ordered_pixels(config.data), self.stand_in)
        yield from found
        if model is not None:
            yield from _guarded("rows", check_sft_rows(config, model, self.num_rows))
        yield from memory.check_host(self.device)
        if self.device == "gpu":
            yield Check("memory", "plan", Status.SKIPPED, detail="fine-tuning is not modelled")
        yield from _guarded("disk", self._sft_disk(config, model))
        yield from self._shared(config, str(config.model.path))
        yield from self._machine(config, config.model)

    def _sft_disk(self, config: DictConfig, model: RunModel | None) -> Iterator[Check]:
        options = RunOptions(lora_rank=int(config.model.lora_rank))
        steps = limits.num_steps(config, sum(map(count_rows, files_of(config.data.train_files))))
        shape = _shape_of(str(config.model.path), model)
        yield from self._disk(config, options, shape, steps, list(config.checkpoint.save_contents))

    # ------------------------------------------------------------------------------------------------- for both kinds

    def _memory_and_disk(
        self, config: DictConfig, model: RunModel | None, largest: Prompt | None, num_rows: int
    ) -> Iterator[Check]:
        role = config.actor_rollout_ref
        yield from memory.check_host(self.device)
        shape = _shape_of(str(role.model.path), model)
        options = RunOptions() if model is None else run_options(config, model.tokens.envelope)
        steps = limits.num_steps(config, num_rows)
        if self.device == "gpu" and model is not None and not isinstance(shape, str) and largest is not None:
            yield from memory.check_plan(config, largest, model.tokens, shape, self.gpu, self.gpus, steps)
        elif self.device == "gpu":
            reason = shape if isinstance(shape, str) else "no row with a video could be measured"
            yield Check("memory", "plan", Status.SKIPPED, detail=reason)
        contents = list(role.actor.checkpoint.save_contents)
        yield from self._disk(config, options, shape, steps, contents)
        yield from self._shared(config, str(role.model.path))

    def _disk(
        self, config: DictConfig, options: RunOptions, shape: ModelShape | str, steps: int | None, contents: list[str]
    ) -> Iterator[Check]:
        folder = Path(config.trainer.default_local_dir)
        if isinstance(shape, str):
            yield Check("disk", "checkpoints", Status.SKIPPED, str(folder), f"their size is not known: {shape}")
        else:
            size, export = memory.checkpoint_sizes(shape, options, contents)
            kept, elsewhere = memory.num_checkpoints(config, steps), self.device == "gpu" and not self.gpus
            yield disk.check_space(folder, size, kept, export, elsewhere=elsewhere)

    def _shared(self, config: DictConfig, model: str) -> Iterator[Check]:
        paths = {"the run's folder": str(config.trainer.default_local_dir)}
        if Path(model).is_dir():
            paths["the model"] = model
        for number, file in enumerate(files_of(config.data.train_files), start=1):
            paths[f"file {number} of rows"] = file
        yield from disk.check_shared(paths, int(config.trainer.nnodes))

    def _machine(self, config: DictConfig, model: DictConfig) -> Iterator[Check]:
        yield from machine.check_gpus(self.device, self.gpus, int(config.trainer.n_gpus_per_node))
        yield from machine.check_attention(model, self.device, bool(self.gpus))
        yield from machine.check_loggers(config.trainer.logger)


def render(run: DryRun, checks: Sequence[Check]) -> str:
    """The table, and under it whether the run can start."""
    failed = [check for check in checks if check.status is Status.FAILED]
    lines = [f"verl_video_tools {__version__}, dry run ({run.kind}, DEVICE={run.device})", *check_lines(checks), ""]
    if failed:
        problems = "1 problem" if len(failed) == 1 else f"{len(failed)} problems"
        lines.append(f"{problems} to fix before the run: {', '.join(check.name for check in failed)}.")
    else:
        lines.append("No problem found. Nothing was started.")
    return "\n".join(lines)


def as_json(run: DryRun, checks: Sequence[Check]) -> str:
    """One JSON object: version, device, ok, checks, as that of `vvt doctor --json`."""
    ok = all(check.status is not Status.FAILED for check in checks)
    facts = {"version": __version__, "device": run.device, "ok": ok, "checks": [asdict(check) for check in checks]}
    return json.dumps(facts, indent=2)


def _read(read: Callable[[], SampledRows], split: str) -> tuple[SampledRows | None, list[Check]]:
    try:
        return read(), []
    except VideoToolsError as error:
        name = "TRAIN_FILES" if split == "training" else "VAL_FILES"
        return None, [
            Check(
                "rows",
                f"{split} rows",
                Status.FAILED,
                detail=str(error),
                fix=f"{name}: a parquet file of rows ({page('rows')})",
            )
        ]


def _shape_of(path: str, model: RunModel | None) -> ModelShape | str:
    """The model's sizes, or why they are not known."""
    reason = ""
    for name in dict.fromkeys((path, *([] if model is None else [model.source]))):
        try:
            return find_model(name)
        except UsageError as error:
            reason = str(error)
    return reason


def _guarded(group: str, checks: Iterable[Check]) -> Iterator[Check]:
    """Checks up to an error, such as an option of the wrong type, which is one of them: it must not hide the others."""
    try:
        yield from checks
    except (VideoToolsError, ValueError, TypeError) as error:
        yield Check(group, "check", Status.FAILED, detail=one_line(error), fix=_OPTIONS_FIX)
