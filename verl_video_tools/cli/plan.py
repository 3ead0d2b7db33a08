"""`vvt plan`: what a training run needs and takes, modelled before it starts."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Annotated, Literal

import typer

from verl_video_tools.cli.list_names import names_of
from verl_video_tools.cli.options import Settings, command

_DEFAULT = "Default: the recipe's."


@command
class Plan:
    """Estimate a run's memory, time and disk. Prints the options that follow; exits 1 if it cannot fit."""

    model: Annotated[str, typer.Option(help="Name such as qwen2.5-vl-7b, or a folder with config.json.")]
    method: Annotated[str, typer.Option(help="Name of the method.", autocompletion=names_of("methods"))]
    gpus: Annotated[int, typer.Option(min=1, help="Of all nodes.")] = 8
    gpu: Annotated[str, typer.Option(help="Kind: h100, h200, h20, a100-80gb, a100-40gb, l40s, rtx-4090.")] = "h100"
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Of one node.")] = 8
    host_memory_gb: Annotated[float | None, typer.Option(min=1, help="Of a node, in GB.")] = None
    shm_gb: Annotated[float | None, typer.Option(min=0, help="/dev/shm of a node; default: not checked.")] = None
    cores: Annotated[int | None, typer.Option(min=1, help="CPU cores of a node.")] = None
    video_seconds: Annotated[float, typer.Option(min=0.1, max=1e7, help="Length of the videos.")] = 3600.0
    width: Annotated[int, typer.Option(min=1, help="Of the videos, in pixels.")] = 1920
    height: Annotated[int, typer.Option(min=1, help="Of the videos, in pixels.")] = 1080
    fps: Annotated[float, typer.Option(min=0.1, max=1000, help="Frames per second of the videos.")] = 30.0
    batch_size: Annotated[int | None, typer.Option(min=1, help=f"Questions of a step. {_DEFAULT}")] = None
    mini_batch_size: Annotated[int | None, typer.Option(min=1, help=f"Questions of an update. {_DEFAULT}")] = None
    micro_batch_size: Annotated[int | None, typer.Option(min=1, help=f"Sequences per GPU at a time. {_DEFAULT}")] = None
    rollouts: Annotated[int | None, typer.Option("--n", min=1, help=f"Rollouts of a question. {_DEFAULT}")] = None
    prompt_length: Annotated[int | None, typer.Option(min=1, help=f"Tokens of a prompt. {_DEFAULT}")] = None
    response_length: Annotated[int | None, typer.Option(min=1, help=f"Tokens of a response. {_DEFAULT}")] = None
    min_pixels: Annotated[int | None, typer.Option(min=1, help=f"Of a frame. {_DEFAULT}")] = None
    max_pixels: Annotated[int | None, typer.Option(min=1, help=f"Of a frame. {_DEFAULT}")] = None
    utilization: Annotated[
        float | None, typer.Option(min=0.05, max=0.99, help=f"gpu_memory_utilization. {_DEFAULT}")
    ] = None
    tp: Annotated[int | None, typer.Option(min=1, help=f"GPUs of an inference server. {_DEFAULT}")] = None
    ulysses: Annotated[int | None, typer.Option(min=1, help=f"GPUs that share a sequence. {_DEFAULT}")] = None
    offload: Annotated[bool | None, typer.Option(help=f"Of weights and optimiser, to host memory. {_DEFAULT}")] = None
    reference: Annotated[bool | None, typer.Option(help=f"A loss with KL. {_DEFAULT}")] = None
    entropy: Annotated[bool | None, typer.Option(help=f"A loss with entropy. {_DEFAULT}")] = None
    freeze_vision: Annotated[bool | None, typer.Option(help=f"Keep the vision tower as it is. {_DEFAULT}")] = None
    lora_rank: Annotated[int | None, typer.Option(min=0, help="LORA_RANK; 0, the default, trains all weights.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    only: Annotated[
        Literal["mm-cache-gb"] | None,
        typer.Option("--print", help="Print only this value, also for a run that does not fit."),
    ] = None
    assignments: Settings = None

    def run(self) -> None:
        from verl_video_tools.core.assignments import read_assignments
        from verl_video_tools.core.types import VideoInfo
        from verl_video_tools.methods import get_method
        from verl_video_tools.planner.constants import GB, constant, find_gpu
        from verl_video_tools.planner.models import find_model
        from verl_video_tools.planner.plan import Cluster, make_plan
        from verl_video_tools.planner.recipes import RunOptions, recipe_options
        from verl_video_tools.planner.text import as_text
        from verl_video_tools.planner.workload import estimated_tokens

        method = get_method(self.method, **read_assignments(self.assignments or []))
        given = {field.name: getattr(self, field.name) for field in fields(RunOptions)}
        usual = recipe_options(method.name, method.recipe_budget)
        if self.batch_size is not None and self.mini_batch_size is None:
            given["mini_batch_size"] = min(usual.mini_batch_size, self.batch_size)
        options = replace(usual, **{name: value for name, value in given.items() if value is not None})
        cluster = Cluster(
            gpu=find_gpu(self.gpu),
            num_gpus=self.gpus,
            gpus_per_node=self.gpus_per_node,
            host_bytes=constant("host_bytes") if self.host_memory_gb is None else self.host_memory_gb * GB,
            cores_per_node=self.cores or int(constant("host_cores")),
            shm_bytes=None if self.shm_gb is None else self.shm_gb * GB,
        )
        num_frames = max(1, round(self.video_seconds * self.fps))
        info = VideoInfo(self.video_seconds, num_frames, self.fps, self.width, self.height)
        model = find_model(self.model)
        tokens = estimated_tokens(model.factor, options)
        plan = make_plan(method, info, model, tokens, options, cluster, self.assignments or ())
        if self.only:
            print(plan.host.mm_cache_gb)
            return
        print(json.dumps(plan.as_dict(), indent=1) if self.as_json else as_text(plan))
        if not plan.fits:
            raise typer.Exit(1)
