"""`vvt train`: a training run from its rows to the exported model."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from verl_video_tools.cli.options import command


@command
class Train:
    """Train a model, from its rows to the exported weights."""

    stage: Annotated[Literal["grpo", "sft", "rft"], typer.Argument(help="What to train by.")]
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
            "--smoke-test", help="Two steps of the tiny model with a real run's options, then one that resumes."
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

        request = Request(
            self.stage,
            tuple(self.overrides),
            synthetic=self.synthetic,
            smoke_test=self.smoke_test,
            save_on_signal=self.save_on_signal,
        )
        if self.cfg:
            print(OmegaConf.to_yaml(plan_run(request).config))
            return
        raise typer.Exit(dry_run(request).show() if self.dry_run else train(request))
