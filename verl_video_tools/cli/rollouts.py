"""Commands that make rollouts of models, and rows of them: `vvt data generate`, `logic`, `classify`, `export-sft`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.options import (
    BASE_URL,
    METHOD,
    Asking,
    Concurrency,
    ExplicitOptions,
    Model,
    Overwrite,
    Records,
    Retrieval,
    RetryFlagged,
    Rows,
    Seed,
    Settings,
    Temperature,
    check_outputs,
    command,
    config_from,
    listed,
    progress_bars,
)
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError
from verl_video_tools.services.config import EndpointConfig

if TYPE_CHECKING:
    from verl_video_tools.data.generate import RolloutTask


@command
class Generate(Asking):
    """Record scored rollouts of a model behind an endpoint. Exits 1 if all failed."""

    source: Annotated[
        Path, typer.Argument(metavar="ROWS.parquet", help="Rows with the questions; with --reflect recorded rollouts.")
    ]
    out: Annotated[
        Path, typer.Argument(help="File to write, with one JSON line per rollout. An existing file is continued.")
    ]
    method: Annotated[str | None, METHOD] = None
    base_url: Annotated[list[str], BASE_URL]
    model: Model = None
    num_samples: Annotated[int, typer.Option("--samples", min=1, help="Number of rollouts of each question.")] = 1
    temperature: Temperature = 1.0
    seed: Seed = None
    settings: Settings = None
    retry_flagged: RetryFlagged = False
    templates: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Dialogue templates: framethinker, or a TOML file."),
    ] = None
    reflect: Annotated[
        bool,
        typer.Option(
            "--reflect", help="Let the model correct recorded rollouts that called a tool and answered wrong."
        ),
    ] = False

    def run(self) -> int:
        if self.reflect:
            return self._reflect()
        if self.method is None:
            raise UsageError("give --method")
        from verl_video_tools.data.dialogue_templates import load_templates
        from verl_video_tools.data.generate import tasks_of_rows

        forms = () if self.templates is None else load_templates(self.templates)
        tasks = tasks_of_rows(self.source, self.num_samples, forms, self.seed)
        return self._make(tasks, self.method, {"templates": [asdict(form) for form in forms]} if forms else {})

    def _reflect(self) -> int:
        from verl_video_tools.data.generate import reflection_prompt, tasks_of_failures

        if self.method is not None or self.templates is not None:
            raise UsageError("with --reflect the method is that of the rollouts, and there are no --templates")
        method, tasks = tasks_of_failures(self.source, self.num_samples)
        return self._make(tasks, method, {}, instruction=reflection_prompt())

    def _make(
        self, tasks: Sequence[RolloutTask], method: str, settings: dict[str, Any], instruction: str | None = None
    ) -> int:
        from verl_video_tools.data.generate import generate
        from verl_video_tools.methods import get_method

        check_outputs([self.out], [self.source], overwrite=True)  # it is continued
        configured = get_method(method, **read_assignments(self.settings or []))
        policy, judge, retriever = self.policy(), self.judge(), self.retriever()
        with progress_bars("reflect" if self.reflect else "generate") as (progress,):
            summary = asyncio.run(
                generate(
                    tasks,
                    self.out,
                    configured,
                    policy,
                    judge=judge,
                    retriever=retriever,
                    tool_model=self.tool_model(),
                    instruction=instruction,
                    seed=self.seed,
                    retry_flagged=self.retry_flagged,
                    settings={"retrieval": self.retrieval_fields(), **settings},
                    progress=progress,
                )
            )
        print(f"{self.out}: {summary}")
        return int(summary.num_flagged == len(summary))


@command
class Logic:
    """Let a model check the reasoning of right dialogues. Exits 1 if none got a verdict."""

    records: Records
    out: Annotated[
        Path,
        typer.Argument(
            help="File to write, with the right rollouts and their verdicts. An existing file is continued."
        ),
    ]
    base_url: Annotated[str, typer.Option("--base-url", metavar="URL", help="Endpoint of the model that checks.")]
    model: Model = None
    concurrency: Concurrency = EndpointConfig.concurrency

    def run(self) -> int:
        from verl_video_tools.data.filters import check_logic

        check_outputs([self.out], [self.records], overwrite=True)  # it is continued
        config = config_from(EndpointConfig, self)
        with progress_bars("logic") as (progress,):
            summary = asyncio.run(check_logic(self.records, self.out, config, progress=progress))
        print(f"{self.out}: {summary}")
        for verdict, named in (("rejected", summary.rejected), ("failed", summary.failed)):
            for (step, uid, session_id), reason in sorted(named.items()):
                typer.echo(f"{verdict}: step {step}, {uid}, rollout {session_id}: {reason}", err=True)
        return int(bool(summary.failed) and not summary.verdicts)


@command
class Classify(Asking):
    """Sort questions into direct, adaptive and active ones. Two models answer them. Exits 1 if all failed."""

    rows: Rows
    out_dir: Annotated[
        Path, typer.Argument(help="Folder for rollouts, rows and report. A classification in this folder is continued.")
    ]
    base_model_url: Annotated[str, typer.Option(metavar="URL", help="Endpoint of the base model.")]
    teacher_url: Annotated[str, typer.Option(metavar="URL", help="Endpoint of the teacher.")]
    base_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the base model; default: the first one that is served.")
    ] = None
    teacher: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the teacher; default: the first one that is served.")
    ] = None
    method: Annotated[str, typer.Option(help="Method whose loop and tools the teacher uses.")] = "videobrain"
    settings: Settings = None
    sft_share: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Share of the teacher's good rollouts whose rows go to fine-tuning."),
    ] = 0.3
    retry_flagged: RetryFlagged = False

    def run(self) -> int:
        from verl_video_tools.data.classify import Evaluator, evaluate, export_classified
        from verl_video_tools.methods import get_method

        if not (self.out_dir / "base.jsonl").exists():  # else the classification in this folder is continued
            check_outputs(self.out_dir / name for name in ("sft.parquet", "rl.parquet", "report.json"))
        with progress_bars("base model", "teacher") as (base_progress, teacher_progress):
            rollouts = asyncio.run(
                evaluate(
                    self.rows,
                    self.out_dir,
                    Evaluator(
                        get_method("direct"),  # sees 16 frames, as the base model of VideoBrain's paper
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
                    retry_flagged=self.retry_flagged,
                    settings={"retrieval": self.retrieval_fields()},
                )
            )
        report, exported = export_classified(self.rows, self.out_dir, *rollouts, sft_share=self.sft_share)
        for source, counts in report["counts"].items():
            print(f"{source}: {listed(counts)}")
        print(f"{self.out_dir / 'sft.parquet'}: {len(report['sft_rows'])} rows; teacher's rollouts {exported}")
        print(f"{self.out_dir / 'rl.parquet'}: {len(report['rl_rows'])} rows")
        for failure in report["failures"]:
            typer.echo(f"row {failure['row']}, {failure['model']}: {failure['reason']}", err=True)
        return int(not report["letters"])


_OF_ROLLOUTS = ("min_accuracy", "min_iou", "well_formed", "keep_reasoning", "min_step", "max_step", "cold_start")
_OF_THE_EXPERT = ("imperfection", "in_words", "questions_per_video", "settings", "retrieval")


@command
class ExportSFT(ExplicitOptions):
    """Write good rollouts as rows for fine-tuning. They come from an expert, or from the policy itself."""

    source: Annotated[
        Path,
        typer.Argument(
            help="Recorded rollouts (folder of a run, or a .jsonl file), or rows of the synthetic world "
            "(.parquet), which a scripted expert answers."
        ),
    ]
    out_parquet: Annotated[Path, typer.Argument(help="File to write: rows with turns.")]
    min_accuracy: Annotated[
        float | None,
        typer.Option(min=0.0, help="Rollouts: lowest accuracy reward to keep; default: that of a correct answer."),
    ] = None
    min_iou: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Rollouts: lowest IoU of the last segment shown and the annotated segment; 0 keeps all.",
        ),
    ] = 0.0
    well_formed: Annotated[
        bool, typer.Option("--well-formed", help="Rollouts: keep those that follow the grammar strictly.")
    ] = False
    keep_reasoning: Annotated[
        bool,
        typer.Option(
            "--keep-reasoning", help="Rollouts: write native reasoning, too, for a model that reasons natively."
        ),
    ] = False
    min_step: Annotated[int | None, typer.Option(help="Rollouts: first step of the run to take them from.")] = None
    max_step: Annotated[int | None, typer.Option(help="Rollouts: last step of the run to take them from.")] = None
    cold_start: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Rollouts: rows with turns of the cold start to mix in; repeatable."),
    ] = None
    cold_share: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Largest share of cold-start rows; default: 0.94, as published."),
    ] = None
    imperfection: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Expert: probability of a call at a wrong place or a guess."),
    ] = 0.0
    in_words: Annotated[
        bool, typer.Option("--in-words", help="Expert: answer with the text of an option instead of its letter.")
    ] = False
    questions_per_video: Annotated[
        int | None,
        typer.Option(min=1, help="Expert: answer this number of new questions per video instead."),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="[METHOD.]FIELD=VALUE", help="Expert: set a field of its method."),
    ] = None
    retrieval: Retrieval = None
    overwrite: Overwrite = False

    def run(self) -> None:
        check_outputs([self.out_parquet], [self.source, *(self.cold_start or ())], overwrite=self.overwrite)
        if self.cold_share is not None and not self.cold_start:
            raise UsageError("--cold-share needs --cold-start FILE")
        has_rows = self.source.suffix == ".parquet"
        if has_rows:
            self.refuse(_OF_ROLLOUTS, f"belongs to recorded rollouts, and not to rows such as {self.source}")
        else:
            self.refuse(_OF_THE_EXPERT, f"belongs to rows (.parquet), and not to rollouts such as {self.source}")
        print(f"{self.out_parquet}: {self._answer_rows() if has_rows else self._choose_rollouts()}")

    def _answer_rows(self) -> object:
        from verl_video_tools.data.sft import export_sft
        from verl_video_tools.services.retrieval import local_from_fields

        return export_sft(
            self.source,
            self.out_parquet,
            imperfection=self.imperfection,
            answers_in_words=self.in_words,
            questions_per_video=self.questions_per_video,
            settings=read_assignments(self.settings or []),
            retriever=local_from_fields(read_assignments(self.retrieval or [], "--retrieval")),
        )

    def _choose_rollouts(self) -> object:
        from verl_video_tools.data.export_rollouts import COLD_SHARE, export_rollouts

        return export_rollouts(
            self.source,
            self.out_parquet,
            min_accuracy=self.min_accuracy,
            min_iou=self.min_iou,
            well_formed=self.well_formed,
            min_step=self.min_step,
            max_step=self.max_step,
            cold_start=self.cold_start or (),
            cold_share=COLD_SHARE if self.cold_share is None else self.cold_share,
            keep_reasoning=self.keep_reasoning,
        )
