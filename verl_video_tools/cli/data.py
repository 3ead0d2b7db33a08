"""`vvt data`: commands that make, check and convert rows. Heavy imports stay inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.asking import Retrieval

app = typer.Typer(
    help="Make, check and convert rows.", add_completion=False, rich_markup_mode=None, no_args_is_help=True
)


@app.callback()
def _options() -> None:
    """Commands that make, check and convert rows."""


MinAccuracy = Annotated[
    float | None,
    typer.Option(min=0.0, help="Least reward for accuracy; default: that of a correct answer."),
]
MinIoU = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Least overlap of the last look with the annotated segment; 0: any.")
]
KeepReasoning = Annotated[
    bool, typer.Option("--keep-reasoning", help="Also write recorded native reasoning, for a model that reasons so.")
]
WellFormed = Annotated[bool, typer.Option("--well-formed", help="Keep only rollouts that follow the grammar strictly.")]

_FILTERS = "--min-accuracy, --min-iou, --well-formed and --keep-reasoning"


@app.command("export-sft")
def export_sft_command(
    source: Annotated[
        Path,
        typer.Argument(
            help="Recorded rollouts (a .jsonl file, or a folder of step_*.jsonl), or rows of the synthetic world "
            "(.parquet), which a scripted expert answers."
        ),
    ],
    out_parquet: Annotated[Path, typer.Argument(help="File to write: rows with turns.")],
    min_accuracy: MinAccuracy = None,
    min_iou: MinIoU = 0.0,
    well_formed: WellFormed = False,
    keep_reasoning: KeepReasoning = False,
    seed: Annotated[int, typer.Option(help="Seed of the scripted expert's choices.")] = 0,
    imperfection: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Probability that the scripted expert looks at a wrong place or guesses."),
    ] = 0.0,
    hasty_share: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Of these, the share that answers without looking."),
    ] = 0.5,
    in_words: Annotated[
        bool, typer.Option("--in-words", help="Let the scripted expert answer with an option's text, not its letter.")
    ] = False,
    keep_wrong: Annotated[
        bool, typer.Option("--keep-wrong", help="Keep the scripted expert's wrong answers as well.")
    ] = False,
    questions_per_video: Annotated[
        int | None,
        typer.Option(min=1, help="Ask the scripted expert so many fresh questions about each video instead."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="[METHOD.]FIELD=VALUE", help="Override a field of the scripted expert's method."),
    ] = None,
    retrieval: Retrieval = None,
) -> None:
    """Write cold-start data: rollouts of an expert that deserve imitation."""
    from verl_video_tools.core.assignments import read_assignments
    from verl_video_tools.core.errors import UsageError
    from verl_video_tools.data.export_rollouts import export_rollouts
    from verl_video_tools.data.sft import export_sft
    from verl_video_tools.services.retrieval import local_from_fields

    filters = min_accuracy is not None or min_iou > 0.0 or well_formed or keep_reasoning
    scripted = (
        imperfection > 0.0
        or in_words
        or keep_wrong
        or questions_per_video is not None
        or bool(settings or retrieval)
        or seed != 0
    )
    if source.suffix != ".parquet":
        if scripted:
            raise UsageError(f"recorded rollouts take {_FILTERS}; others need .parquet")
        report = export_rollouts(
            source,
            out_parquet,
            min_accuracy=min_accuracy,
            min_iou=min_iou,
            well_formed=well_formed,
            keep_reasoning=keep_reasoning,
        )
    else:
        if filters:
            raise UsageError(f"{_FILTERS} choose among recorded rollouts, not rows")
        report = export_sft(
            source,
            out_parquet,
            seed=seed,
            imperfection=imperfection,
            hasty_share=hasty_share,
            answers_in_words=in_words,
            keep_wrong=keep_wrong,
            questions_per_video=questions_per_video,
            settings=read_assignments(settings or []),
            retriever=local_from_fields(read_assignments(retrieval or [], "--retrieval")),
        )
    print(f"{out_parquet}: {report}")


@app.command("export-rft")
def export_rft_command(
    records: Annotated[Path, typer.Argument(help="Recorded rollouts: a folder of step_*.jsonl, or a .jsonl file.")],
    out_parquet: Annotated[Path, typer.Argument(help="File to write: rows with turns, as export-sft writes them.")],
    min_accuracy: MinAccuracy = None,
    min_iou: MinIoU = 0.3,
    well_formed: WellFormed = False,
    min_step: Annotated[int | None, typer.Option(help="First step whose rollouts count; default: the first.")] = None,
    max_step: Annotated[int | None, typer.Option(help="Last step whose rollouts count; default: the last.")] = None,
    cold_start: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Rows with turns of the cold start, to be mixed in; repeatable."),
    ] = None,
    cold_share: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Their share of all rows at most; default: 0.94, as published."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice among the rows of the cold start.")] = 0,
    keep_reasoning: KeepReasoning = False,
) -> None:
    """Write a policy's own good rollouts for reinforcement fine-tuning, and rows of the cold start beside them."""
    from verl_video_tools.core.errors import UsageError
    from verl_video_tools.data.export_rollouts import COLD_SHARE, export_rollouts

    if cold_share is not None and not cold_start:
        raise UsageError("--cold-share needs --cold-start FILE")
    report = export_rollouts(
        records,
        out_parquet,
        min_accuracy=min_accuracy,
        min_iou=min_iou,
        well_formed=well_formed,
        min_step=min_step,
        max_step=max_step,
        cold_start=cold_start or (),
        cold_share=COLD_SHARE if cold_share is None else cold_share,
        seed=seed,
        keep_reasoning=keep_reasoning,
    )
    print(f"{out_parquet}: {report}")


@app.command("filter")
def filter_command(
    in_parquet: Annotated[Path, typer.Argument(help="Rows for reinforcement learning.")],
    out_parquet: Annotated[Path, typer.Argument(help="File to write.")],
    records: Annotated[
        Path | None, typer.Option(help="Recorded rollouts of these rows: a .jsonl file, or a folder of step_*.jsonl.")
    ] = None,
    pass_rates: Annotated[
        Path | None, typer.Option(help="Instead: JSON lines with video_path, question and pass_rate.")
    ] = None,
    band_seconds: Annotated[
        list[float] | None,
        typer.Option(help="Bound between bands of video length to balance, such as 180; repeatable, ascending."),
    ] = None,
    rows_per_band: Annotated[
        int | None, typer.Option(min=1, help="Rows of each band at most; default: as many as the median band has.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice within a band.")] = 0,
) -> None:
    """Balance rows by video length, then drop questions that all rollouts, or none, answered."""
    from verl_video_tools.core.errors import UsageError
    from verl_video_tools.data.difficulty import filter_rows, pass_rates_of_file, pass_rates_of_records

    if records is not None and pass_rates is not None:
        raise UsageError("give either --records or --pass-rates")
    if records is None and pass_rates is None and not band_seconds:
        raise UsageError("nothing to choose by: give --records or --pass-rates, --band-seconds, or both")
    rates = pass_rates_of_records(records) if records is not None else None
    if pass_rates is not None:
        rates = pass_rates_of_file(pass_rates)
    report = filter_rows(
        in_parquet, out_parquet, rates, band_seconds=band_seconds or (), rows_per_band=rows_per_band, seed=seed
    )
    print(f"{out_parquet}: {report}")


if __name__ == "__main__":
    app()
