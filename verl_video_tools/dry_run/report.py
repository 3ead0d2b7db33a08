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
from verl_video_tools.dry_run import disk, limits, machine, memory, services
from verl_video_tools.dry_run.first_frames import Prompt
from verl_video_tools.dry_run.grpo_rows import GrpoRows
from verl_video_tools.dry_run.model import load_model
from verl_video_tools.dry_run.sampled import SampledRows, files_of
from verl_video_tools.dry_run.sft_rows import check_sft_rows
from verl_video_tools.planner.models import ModelShape, find_model
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
        with asyncio.Runner() as runner:
            for split in rows.splits():
                sampled, found_rows = _read(partial(rows.read, split), split)
                yield from found_rows
                if sampled is None:
                    continue
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
        yield from self._memory(config, model, largest)
        yield from self._disk(config, str(config.actor_rollout_ref.model.path))
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
        yield from self._disk(config, str(config.model.path))
        yield from self._machine(config, config.model)

    # ------------------------------------------------------------------------------------------------- for both kinds

    def _memory(self, config: DictConfig, model: RunModel | None, largest: Prompt | None) -> Iterator[Check]:
        yield from memory.check_host(self.device)
        if self.device != "gpu":
            return
        shape = _shape_of(str(config.actor_rollout_ref.model.path), model)
        if isinstance(shape, str):
            yield Check("memory", "plan", Status.SKIPPED, detail=shape)
        elif model is None or largest is None:
            yield Check("memory", "plan", Status.SKIPPED, detail="no row with a video could be measured")
        else:
            yield from memory.check_plan(config, largest, model.tokens, shape, self.gpu, self.gpus)

    def _disk(self, config: DictConfig, model: str) -> Iterator[Check]:
        folder = Path(config.trainer.default_local_dir)
        yield disk.check_folder(folder, elsewhere=self.device == "gpu" and not self.gpus)
        paths = {"the run's folder": str(folder)}
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
