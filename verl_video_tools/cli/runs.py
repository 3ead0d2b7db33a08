"""Commands about training runs: `vvt train`, `vvt doctor`, and the estimates `vvt estimate` and `vvt budget`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

from verl_video_tools.cli.options import METHOD, MaxPixels, MinPixels, Settings, command, config_from
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from verl_video_tools.rollout.cost import CostEstimate

_FPS = 30.0
"""Of the videos that are assumed: how many frames one has bounds what a method may show of it."""


@command
class Train:
    """Train a model. Checks the run, starts it, and exports the weights."""

    stage: Annotated[
        Literal["grpo", "sft", "rft"],
        typer.Argument(
            help="Reinforcement learning (grpo), fine-tuning (sft), or fine-tuning on the policy's own rollouts (rft)."
        ),
    ]
    overrides: Annotated[
        list[str],
        typer.Argument(
            metavar="OVERRIDES...",
            help="Config groups, such as +video_tools=longvt_grpo, then options of verl, NAME=VALUE.",
        ),
    ]
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="Train a tiny model on synthetic videos, as on a machine without a GPU.")
    ] = False
    smoke_test: Annotated[
        bool,
        typer.Option(
            "--smoke-test",
            help="Run two steps of a tiny model with the options of the real run, and a third one that resumes.",
        ),
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check what can be checked without Ray, an engine or weights.")
    ] = False
    save_on_signal: Annotated[
        bool,
        typer.Option("--save-on-signal", help="Save a checkpoint at the first SIGINT, SIGTERM or SIGHUP."),
    ] = False
    cfg: Annotated[
        Literal["job"] | None, typer.Option(help="Print the whole configuration as YAML instead of training.")
    ] = None

    def run(self) -> None:
        from omegaconf import OmegaConf

        from verl_video_tools.launch.train import Request, dry_run, plan_run, train

        request = config_from(Request, self, overrides=tuple(self.overrides))
        if self.cfg:
            print(OmegaConf.to_yaml(plan_run(request).config))
            return
        raise typer.Exit(dry_run(request).show() if self.dry_run else train(request))


@command
class Doctor:
    """Check an installation, or a run with --run. Exits 1 and prints fixes if it cannot train."""

    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VERL_OPTION]...", help="With --run: more config groups, and options of verl."),
    ] = None
    group: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="GROUP",
            help="A method and a stage, such as longvt_grpo: check the run's configuration, model, rows and services "
            "with the variables of this shell, and start nothing.",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False
    judge_base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Check the judge at this endpoint, too; default: VVT_JUDGE_BASE_URL."),
    ] = None
    judge_model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the judge's model; default: the first one that is served."),
    ] = None

    def run(self) -> int:
        if self.group is None:
            if self.options:
                raise UsageError(f"options of verl belong to a run: vvt doctor --run GROUP {' '.join(self.options)}")
            from verl_video_tools.launch.checks.installation import installation_report

            return installation_report(self.judge_base_url, self.judge_model).show(self.as_json)
        if self.judge_base_url or self.judge_model:
            raise UsageError("with --run the judge is the one that the run's options name")
        from verl_video_tools.launch.train import Request, Stage, dry_run

        stage = self.group.rpartition("_")[2]
        if stage not in get_args(Stage):
            raise UsageError(f"--run {self.group}: give a method and a stage, such as longvt_grpo")
        overrides = (f"+video_tools={self.group}", *(self.options or ()))
        return dry_run(Request(cast(Stage, stage), overrides)).show(self.as_json)


@command
class Estimate:
    """Estimate tokens and memory of a GRPO run. Its videos have one hour in 1920x1080."""

    model: Annotated[str, typer.Option(help="Name such as qwen2.5-vl-7b, or a folder with config.json.")]
    method: Annotated[str, METHOD]
    gpus: Annotated[int, typer.Option(min=1, help="Number of GPUs on all nodes.")] = 8
    gpu: Annotated[str, typer.Option(help="Kind of GPU: h100, h200, h20, a100-80gb, a100-40gb, l40s, rtx-4090.")] = (
        "h100"
    )
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Number of GPUs on one node.")] = 8
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="FIELD=VALUE",
            help="Option that differs from the recipe, such as ulysses=4 or lora_rank=32; repeatable.",
        ),
    ] = None
    settings: Settings = None

    def run(self) -> None:
        from verl_video_tools.core.config import checked_fields
        from verl_video_tools.launch.plan import (
            HOUR,
            Cluster,
            RunOptions,
            as_text,
            estimate_run,
            find_gpu,
            find_model,
            recipe_options,
        )
        from verl_video_tools.methods import get_method
        from verl_video_tools.rollout.cost import estimated_tokens

        method = get_method(self.method, **read_assignments(self.settings or []))
        overrides = checked_fields(RunOptions, read_assignments(self.options or [], "--option"))
        options = replace(recipe_options(method), **overrides)
        model = find_model(self.model)
        cluster = Cluster(find_gpu(self.gpu), self.gpus, self.gpus_per_node)
        tokens = estimated_tokens(options.envelope(model.factor))
        print(as_text(estimate_run(method, HOUR, model, tokens, options, cluster)))


@command
class Budget:
    """Estimate the tokens and the limits of a rollout."""

    method: Annotated[str, METHOD]
    processor: Annotated[
        str, typer.Option(metavar="MODEL_DIR", help="Folder or name of the model whose processor counts tokens.")
    ]
    duration: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Length of the video.")] = 3600.0
    size: Annotated[str, typer.Option(metavar="WIDTHxHEIGHT", help="Size of the video in pixels.")] = "1920x1080"
    turn_tokens: Annotated[int, typer.Option(min=1, help="Tokens that the policy writes per turn.")] = 512
    min_pixels: MinPixels = None
    max_pixels: MaxPixels = None
    settings: Settings = None

    def run(self) -> None:
        from verl_video_tools.core.files import hold_output
        from verl_video_tools.core.types import VideoInfo
        from verl_video_tools.launch.plan import QUESTION
        from verl_video_tools.methods import get_method
        from verl_video_tools.rollout.cost import estimate_cost
        from verl_video_tools.verl_plugin.model_tokens import load_model_tokens

        width, height = _read_size(self.size)
        if not math.isfinite(self.duration * _FPS):
            raise UsageError(f"--duration {self.duration:g}: a video's is a finite number of seconds, such as 3600")
        info = VideoInfo(self.duration, max(1, round(self.duration * _FPS)), _FPS, width, height)
        with hold_output():
            model = load_model_tokens(self.processor, {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels})
            configured = get_method(self.method, **read_assignments(self.settings or []))
            estimate = estimate_cost(configured, info, model, question=QUESTION, turn_tokens=self.turn_tokens)
        print(_as_text(estimate))


def _as_text(estimate: CostEstimate) -> str:
    """Three small tables as plain text."""
    costs = {"initial frames": estimate.initial_frames, "a call, at most": estimate.call}
    lines = [f"{'':<22}{'frames':>10}{'size':>12}{'per frame':>12}{'tokens':>12}"]
    for name, frames in costs.items():
        if frames is not None:
            size = f"{frames.width}x{frames.height}"
            lines.append(f"{name:<22}{frames.num_frames:>10,}{size:>12}{frames.frame_tokens:>12,}{frames.tokens:>12,}")
    needed, reserved = estimate.needed, estimate.reserved
    rows = {
        "max_prompt_length": (needed.prompt_tokens, reserved.prompt_tokens),
        "max_response_length": (needed.response_tokens, reserved.response_tokens),
        "max_model_len": tuple(limits.prompt_tokens + limits.response_tokens for limits in (needed, reserved)),
        "images": (needed.images, reserved.images),
    }
    turns = f"{estimate.max_turns} turns"
    lines += ["", f"{'':<22}{turns:>10}{'reserved':>12}    tokens written per turn: {estimate.turn_tokens:,}"]
    for name, (needed_value, recipe) in rows.items():
        mark = f"    exceeded by {needed_value - recipe:,}" if needed_value > recipe else ""
        lines.append(f"{name:<22}{needed_value:>10,}{recipe:>12,}{mark}")
    if estimate.call is not None:
        num_calls = estimate.calls_that_fit(reserved)
        lines += ["", f"within what the recipe reserves: {num_calls} of {estimate.max_turns - 1} such calls"]
    return "\n".join(lines)


def _read_size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) > 0 and int(height) > 0):
        raise UsageError(f"--size {text!r}: write WIDTHxHEIGHT in pixels, such as 1920x1080")
    return int(width), int(height)
