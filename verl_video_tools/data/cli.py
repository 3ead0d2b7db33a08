"""`vvt data`: commands that make, check and convert rows. Heavy imports stay inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Make, check and convert rows.", add_completion=False, rich_markup_mode=None, no_args_is_help=True
)


@app.callback()
def _options() -> None:
    """Commands that make, check and convert rows."""


@app.command("export-sft")
def export_sft_command(
    rl_parquet: Annotated[Path, typer.Argument(help="Rows of the synthetic world, such as DIR/train.parquet.")],
    out_parquet: Annotated[Path, typer.Argument(help="File to write: the same rows with the expert's turns.")],
    seed: Annotated[int, typer.Option(help="Seed of the expert's choices.")] = 0,
    imperfection: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Probability that the expert looks at a wrong place or only guesses."),
    ] = 0.0,
    keep_wrong: Annotated[
        bool, typer.Option("--keep-wrong", help="Keep rollouts with a wrong answer as well.")
    ] = False,
    questions_per_video: Annotated[
        int | None, typer.Option(min=1, help="Ask so many fresh questions about each video instead of the file's own.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of the method's config; repeatable."),
    ] = None,
) -> None:
    """Write cold-start rows of a scripted expert. Its turns are executed on the videos, and kept if right."""
    from verl_video_tools.cli.replay import read_assignments
    from verl_video_tools.data.sft import export_sft

    report = export_sft(
        rl_parquet,
        out_parquet,
        seed=seed,
        imperfection=imperfection,
        keep_wrong=keep_wrong,
        questions_per_video=questions_per_video,
        settings=read_assignments(settings or []),
    )
    print(f"{out_parquet}: {report}")


@app.command("export-rft")
def export_rft_command(
    records: Annotated[Path, typer.Argument(help="Folder of recorded rollouts (step_*.jsonl).")],
    out_parquet: Annotated[Path, typer.Argument(help="File to write: rows with turns, as export-sft writes them.")],
    min_accuracy: Annotated[float, typer.Option(min=0.0, help="Least reward for accuracy.")] = 1.0,
    min_iou: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Least overlap of the last crop with the annotated segment; 0: any."),
    ] = 0.3,
) -> None:
    """Write a policy's own good rollouts as rows. Those that are right and looked at the right place, for RFT."""
    from verl_video_tools.data.rft import export_rft

    print(f"{out_parquet}: {export_rft(records, out_parquet, min_accuracy=min_accuracy, min_iou=min_iou)}")


@app.command("filter")
def filter_command(
    in_parquet: Annotated[Path, typer.Argument(help="Rows for reinforcement learning.")],
    out_parquet: Annotated[Path, typer.Argument(help="File to write.")],
    records: Annotated[
        Path | None, typer.Option(help="Folder of recorded rollouts (step_*.jsonl) of these rows.")
    ] = None,
    pass_rates: Annotated[
        Path | None, typer.Option(help="Instead: JSON lines with video_path, question and pass_rate.")
    ] = None,
    band_seconds: Annotated[
        list[float] | None,
        typer.Option(help="Bound between bands of video length to balance, such as 180; repeatable, ascending."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice within a band.")] = 0,
) -> None:
    """Drop questions that all rollouts, or none, answered. Balances the rest by video length."""
    from verl_video_tools.data.difficulty import filter_rows, pass_rates_of_file, pass_rates_of_records
    from verl_video_tools.errors import UsageError

    if records is not None and pass_rates is None:
        rates = pass_rates_of_records(records)
    elif pass_rates is not None and records is None:
        rates = pass_rates_of_file(pass_rates)
    else:
        raise UsageError("give either --records or --pass-rates")
    print(f"{out_parquet}: {filter_rows(in_parquet, out_parquet, rates, band_seconds=band_seconds or (), seed=seed)}")


if __name__ == "__main__":
    app()
