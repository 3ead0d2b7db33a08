"""`vvt data classify`: read the options, let both models answer, write rows and report."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import check_outputs
from verl_video_tools.cli.options import Asking, RetryFlagged, Seed, Temperature, command, listed
from verl_video_tools.core.assignments import read_assignments


@command
class Classify(Asking):
    """Sort questions into Direct, Adaptive and Active. Two models answer them; exits 1 if all failed."""

    rows: Annotated[Path, typer.Argument(metavar="ROWS.parquet", help="Rows with the questions.")]
    out_dir: Annotated[
        Path, typer.Argument(help="Folder for rollouts, rows and report; a classification in it is continued.")
    ]
    base_model_url: Annotated[str, typer.Option(metavar="URL", help="Endpoint of the base model.")]
    teacher_url: Annotated[str, typer.Option(metavar="URL", help="Endpoint of the teacher.")]
    base_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Base model; default: the first that is served.")
    ] = None
    teacher: Annotated[str | None, typer.Option(metavar="NAME", help="Teacher; default: the first that is served.")] = (
        None
    )
    method: Annotated[str, typer.Option(help="Method whose loop and tools the teacher has.")] = "videobrain"
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of the teacher's method; repeatable."),
    ] = None
    num_frames: Annotated[int, typer.Option(min=1, help="Frames that the base model sees.")] = 16
    sft_share: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Share of the teacher's good rollouts whose rows go to fine-tuning."),
    ] = 0.3
    temperature: Temperature = 1.0
    seed: Seed = None
    retry_flagged: RetryFlagged = False

    def run(self) -> int:
        from verl_video_tools.cli.progress import progress_bars
        from verl_video_tools.data.classify import Evaluator, classify, evaluate, export_classified, write_report
        from verl_video_tools.methods import get_method

        if not (self.out_dir / "base.jsonl").exists():  # else the folder of such a run, which goes on there
            tables = (self.out_dir / name for name in ("sft.parquet", "rl.parquet"))
            check_outputs(rows=tables, texts=(self.out_dir / "report.json",))
        with progress_bars("base model", "teacher") as (base_progress, teacher_progress):
            evaluation = asyncio.run(
                evaluate(
                    self.rows,
                    self.out_dir,
                    Evaluator(
                        get_method("direct", initial_frames=self.num_frames),
                        self.policy(base_url=self.base_model_url, model=self.base_model),
                        base_progress,
                    ),
                    Evaluator(
                        get_method(self.method, **read_assignments(self.settings or [])),
                        self.policy(base_url=self.teacher_url, model=self.teacher),
                        teacher_progress,
                    ),
                    judge=self.judge(),
                    retriever=self.retriever(),
                    tool_model=self.tool_model(),
                    seed=self.seed,
                    retry_flagged=self.retry_flagged,
                    settings={"retrieval": self.retrieval_fields()},
                )
            )
        found = classify(evaluation)
        exported = export_classified(
            self.rows,
            self.out_dir,
            evaluation,
            found,
            sft_share=self.sft_share,
            seed=self.seed or 0,
        )
        for source, counts in write_report(self.out_dir, evaluation, found, exported).items():
            print(f"{source}: {listed(counts)}")
        print(f"{self.out_dir / 'sft.parquet'}: {len(exported.sft_rows)} rows; teacher's rollouts {exported.rollouts}")
        print(f"{self.out_dir / 'rl.parquet'}: {len(exported.rl_rows)} rows")
        for failure in found.failures:
            typer.echo(f"row {failure.row}, {failure.model}: {failure.reason}", err=True)
        return int(not found.letters)
