"""`vvt data export-sft`: rows with turns from rollouts worth imitating."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.options import Retrieval, command
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError

MinAccuracy = Annotated[
    float | None,
    typer.Option(min=0.0, help="Lowest accuracy reward; default: that of a correct answer."),
]
MinIoU = Annotated[
    float,
    typer.Option(
        min=0.0, max=1.0, help="Lowest overlap (IoU) of the last segment shown with the annotated one; 0: any."
    ),
]
KeepReasoning = Annotated[
    bool,
    typer.Option("--keep-reasoning", help="Also write recorded native reasoning, for a model that reasons natively."),
]
WellFormed = Annotated[bool, typer.Option("--well-formed", help="Keep only rollouts that follow the grammar strictly.")]

_FILTERS = "--min-accuracy, --min-iou, --well-formed and --keep-reasoning"


@command
class ExportSFT:
    """Write good rollouts of an expert as rows for fine-tuning."""

    source: Annotated[
        Path,
        typer.Argument(
            help="Recorded rollouts (folder of a run, or a .jsonl file), or rows of the synthetic world "
            "(.parquet), which a scripted expert answers."
        ),
    ]
    out_parquet: Annotated[Path, typer.Argument(help="File to write: rows with turns.")]
    min_accuracy: MinAccuracy = None
    min_iou: MinIoU = 0.0
    well_formed: WellFormed = False
    keep_reasoning: KeepReasoning = False
    seed: Annotated[int, typer.Option(help="Seed for the scripted expert's choices.")] = 0
    imperfection: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Probability that the scripted expert looks at a wrong place or guesses."),
    ] = 0.0
    skip_rate: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Of these, the share that answers without looking."),
    ] = 0.5
    in_words: Annotated[
        bool, typer.Option("--in-words", help="Let the scripted expert answer with an option's text, not its letter.")
    ] = False
    keep_wrong: Annotated[
        bool, typer.Option("--keep-wrong", help="Keep the scripted expert's wrong answers as well.")
    ] = False
    questions_per_video: Annotated[
        int | None,
        typer.Option(min=1, help="Ask the scripted expert this number of new questions per video instead."),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="[METHOD.]FIELD=VALUE", help="Override a field of the scripted expert's method."),
    ] = None
    retrieval: Retrieval = None
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.data.export_rollouts import export_rollouts
        from verl_video_tools.data.sft import export_sft
        from verl_video_tools.services.retrieval import local_from_fields

        check_outputs(rows=(self.out_parquet,), sources=(self.source,), overwrite=self.overwrite)
        filters = self.min_accuracy is not None or self.min_iou > 0.0 or self.well_formed or self.keep_reasoning
        scripted = (
            self.imperfection > 0.0
            or self.in_words
            or self.keep_wrong
            or self.questions_per_video is not None
            or bool(self.settings or self.retrieval)
            or self.seed != 0
        )
        if self.source.suffix != ".parquet":
            if scripted:
                raise UsageError(f"recorded rollouts take {_FILTERS}; others need .parquet")
            report = export_rollouts(
                self.source,
                self.out_parquet,
                min_accuracy=self.min_accuracy,
                min_iou=self.min_iou,
                well_formed=self.well_formed,
                keep_reasoning=self.keep_reasoning,
            )
        else:
            if filters:
                raise UsageError(f"{_FILTERS} choose among recorded rollouts, not rows")
            report = export_sft(
                self.source,
                self.out_parquet,
                seed=self.seed,
                imperfection=self.imperfection,
                skip_rate=self.skip_rate,
                answers_in_words=self.in_words,
                keep_wrong=self.keep_wrong,
                questions_per_video=self.questions_per_video,
                settings=read_assignments(self.settings or []),
                retriever=local_from_fields(read_assignments(self.retrieval or [], "--retrieval")),
            )
        print(f"{self.out_parquet}: {report}")
