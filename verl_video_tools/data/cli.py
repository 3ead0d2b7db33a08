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
    """Write cold-start data: a scripted expert's turns, executed on the real videos and kept if right."""
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


if __name__ == "__main__":
    app()
