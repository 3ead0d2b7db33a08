"""`vvt plan`: the tokens and memory that a run needs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated

import typer

from verl_video_tools.cli.list_names import names_of
from verl_video_tools.cli.options import Settings, command

_DEFAULT = "Default: the recipe's."


@command
class Plan:
    """Estimate tokens and memory of a GRPO run. Videos are an hour long in 1920x1080."""

    model: Annotated[str, typer.Option(help="Name such as qwen2.5-vl-7b, or a folder with config.json.")]
    method: Annotated[str, typer.Option(help="Name of the method.", autocompletion=names_of("methods"))]
    gpus: Annotated[int, typer.Option(min=1, help="Of all nodes.")] = 8
    gpu: Annotated[str, typer.Option(help="Kind: h100, h200, h20, a100-80gb, a100-40gb, l40s, rtx-4090.")] = "h100"
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Of one node.")] = 8
    batch_size: Annotated[int | None, typer.Option(min=1, help=f"Questions of a step. {_DEFAULT}")] = None
    rollouts: Annotated[int | None, typer.Option("--n", min=1, help=f"Rollouts of a question. {_DEFAULT}")] = None
    prompt_length: Annotated[int | None, typer.Option(min=1, help=f"Tokens of a prompt. {_DEFAULT}")] = None
    response_length: Annotated[int | None, typer.Option(min=1, help=f"Tokens of a response. {_DEFAULT}")] = None
    tp: Annotated[int | None, typer.Option(min=1, help=f"GPUs of an inference server. {_DEFAULT}")] = None
    ulysses: Annotated[int | None, typer.Option(min=1, help=f"GPUs that share a sequence. {_DEFAULT}")] = None
    lora_rank: Annotated[
        int | None, typer.Option(min=0, help="Rank of the adapter; 0, the default, trains all weights.")
    ] = None
    assignments: Settings = None

    def run(self) -> None:
        from verl_video_tools.core.assignments import read_assignments
        from verl_video_tools.methods import get_method
        from verl_video_tools.planner.memory import Cluster, find_gpu
        from verl_video_tools.planner.models import find_model
        from verl_video_tools.planner.options import RunOptions, recipe_options
        from verl_video_tools.planner.plan import as_text, make_plan
        from verl_video_tools.planner.workload import HOUR, estimated_tokens

        method = get_method(self.method, **read_assignments(self.assignments or []))
        given = {field.name: getattr(self, field.name, None) for field in fields(RunOptions)}
        options = replace(
            recipe_options(method),
            **{name: value for name, value in given.items() if value is not None},
        )
        model = find_model(self.model)
        plan = make_plan(
            method,
            HOUR,
            model,
            estimated_tokens(options.envelope(model.factor)),
            options,
            Cluster(find_gpu(self.gpu), self.gpus, self.gpus_per_node),
        )
        print(as_text(plan))
