"""Commands that read or make records of rollouts: `vvt view`, `vvt report` and `vvt replay`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.options import METHOD, Services, Settings, check_page, command, progress_bars
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError, writing
from verl_video_tools.core.files import hold_output

if TYPE_CHECKING:
    from verl_video_tools.services.tool_model import ScriptedToolModel, ToolModelConfig

LOST = 3
"""Exit code of a replayed rollout that was lost, such as one of an unreadable video."""


@command
class View:
    """Draw recorded rollouts as one HTML file. The file needs no network."""

    records: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run or of its trajectories, or one file of records.")
    ]
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTML file to write; default: rollouts.html in the folder of the run."),
    ] = None
    max_rollouts: Annotated[
        int,
        typer.Option(
            min=1, help="Largest number of rollouts on the page. If there are more, it shows groups of the last steps."
        ),
    ] = 500
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the model whose tokenizer shows tokens as text.")
    ] = None

    def run(self) -> None:
        from verl_video_tools.records.records import record_files, run_folder
        from verl_video_tools.records.view import write_view

        name = self.records.stem if self.records.is_file() else "rollouts"
        out = self.out or run_folder(self.records) / f"{name}.html"
        check_page(out, record_files(self.records))
        with progress_bars("thumbnails") as (decoded,):
            view = write_view(
                self.records,
                out,
                title=str(self.records),
                max_rollouts=self.max_rollouts,
                decoded=decoded,
                token_text=None if self.tokenizer is None else _token_text(self.tokenizer),
            )

        omitted = f", {view.num_left_out} others left out (--max-rollouts)" if view.num_left_out else ""
        megabytes = view.num_bytes / 1e6
        num_images = view.thumbnails.count()
        print(f"{out}: {view.num_rollouts} rollouts{omitted}, {num_images} thumbnails, {megabytes:.1f} MB")
        if view.thumbnails.notes:
            example = next(iter(view.thumbnails.notes.values()))
            print(f"videos without thumbnails: {len(view.thumbnails.notes)}, for example {example}")


@command
class Report:
    """Draw the learning curves of one run or several. Writes a figure, a table and the numbers."""

    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folder of a run, or of its records; several are compared.")
    ]
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the report; default: report in the first run.")
    ] = None
    name: Annotated[
        list[str] | None, typer.Option(help="Name of a run in the report, once for each; default: its folder's.")
    ] = None

    def run(self) -> None:
        from verl_video_tools.records.records import run_folder
        from verl_video_tools.records.report import read_run, write_report

        folders = [run_folder(run).resolve() for run in self.runs]
        above = os.path.commonpath([folder.parent for folder in folders])
        names = self.name or [folder.relative_to(above).as_posix() for folder in folders]
        if len(names) != len(self.runs):
            raise UsageError(f"--name is given {len(names)} times for {len(self.runs)} runs; give it once for each run")
        if len(set(names)) < len(names):
            raise UsageError(f"two runs have the same name ({', '.join(names)}); give another with --name")
        with progress_bars(*names) as bars:
            runs = [read_run(name, run, advance) for name, run, advance in zip(names, self.runs, bars, strict=True)]
        out = self.out or run_folder(self.runs[0]) / "report"
        with writing(out, "give another --out"):
            out.mkdir(parents=True, exist_ok=True)
        print(write_report(runs, out))
        print(f"{out / 'report.md'}, {out / 'curves.png'}, {out / 'curves.json'}")


@command
class Replay(Services):
    """Run a method on one video with turns that you wrote. Loop, tools and reward are real. Prints one JSON object.
    Exits 3, with `error` in the object, if the video cannot be read."""

    # Standard output carries the JSON and nothing else: what libraries print meanwhile is held back, then shown on
    # standard error unless the usage was bad.

    method: Annotated[str, METHOD]
    video: Annotated[
        str | None,
        typer.Option(help="Video file. Leave it out if --extra names images or says that there are none (visuals)."),
    ] = None
    question: Annotated[str, typer.Option(help="Text of the question, with its options.")]
    answer: Annotated[str, typer.Option(help="Ground truth.")]
    turns: Annotated[Path, typer.Option(help="JSON file with the turns of the assistant: a list of texts, in order.")]
    extra: Annotated[str, typer.Option(metavar="JSON", help="JSON object to add to the extra_info of the row.")] = "{}"
    settings: Settings = None
    processor: Annotated[
        str | None,
        typer.Option(help="Folder of the model whose processor counts tokens. Without it, no token budget applies."),
    ] = None
    tool_model_replies: Annotated[
        Path | None,
        typer.Option(help="JSON file with replies to use instead of --tool-model: a list of texts, in order."),
    ] = None
    html: Annotated[
        Path | None, typer.Option(metavar="OUT", help="HTML file to write: the rollout as `vvt view` draws it.")
    ] = None

    def run(self) -> int:
        if self.html is not None:
            check_page(self.html, (self.turns,))
        turns = read_turns(self.turns)
        extra = read_extra(self.extra)
        if self.video is None and not extra.keys() & {"image_paths", "visuals"}:
            raise UsageError("give --video, or --extra with image_paths, or with visuals as none")
        from verl_video_tools.methods.run_settings import with_run_settings

        settings = with_run_settings(self.processor, self.method, read_assignments(self.settings or []))
        judge, tool_model = self.judge(), self._tool_model()
        retrieval_fields = self.retrieval_fields()

        with hold_output():
            from verl_video_tools.replay import replay
            from verl_video_tools.services.retrieval import local_from_fields

            result = replay(
                method=self.method,
                video=self.video,
                question=self.question,
                answer=self.answer,
                turns=turns,
                extra=extra,
                settings=settings,
                processor=self.processor,
                judge=judge,
                retriever=local_from_fields(retrieval_fields),
                html=self.html,
                tool_model=tool_model,
            )
        json.dump(result, sys.stdout, indent=2, allow_nan=False)
        sys.stdout.write("\n")
        if names := result.get("not_scored"):
            sys.stdout.flush()
            print(
                f"not scored: {', '.join(names)} (a rollout earns it beside the others of its group)", file=sys.stderr
            )
        if (error := result.get("error")) is None:
            return 0
        sys.stdout.flush()
        print(f"vvt: {result['stop_reason']}: {' '.join(error.split())}", file=sys.stderr)
        return LOST

    def _tool_model(self) -> ToolModelConfig | ScriptedToolModel | None:
        config = self.tool_model()
        if self.tool_model_replies is None:
            return config
        if config is not None:
            raise UsageError("give either an endpoint for the tools' model or --tool-model-replies")
        from verl_video_tools.services.tool_model import ScriptedToolModel

        return ScriptedToolModel(read_turns(self.tool_model_replies, "--tool-model-replies"))


def read_turns(path: Path, option: str = "--turns") -> list[str]:
    """The assistant texts in a JSON file, or the replies of another model.

    Raises:
        UsageError: the file cannot be read or is not a JSON list of strings.
    """
    try:
        turns = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # invalid JSON, invalid UTF-8, JSON nested too deep
        raise UsageError(f"{option} {path}: not a JSON file ({error})") from error
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise UsageError(f"{option} {path}: expected a JSON list of strings, one per turn or reply")
    return turns


def read_extra(text: str) -> dict[str, Any]:
    """The JSON object given as `--extra`.

    Raises:
        UsageError: the text is not a JSON object.
    """
    try:
        extra = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--extra: not JSON ({error}), got {text!r}") from error
    if not isinstance(extra, dict):
        raise UsageError(f"--extra: expected a JSON object, got {text!r}")
    return extra


def _token_text(folder: Path) -> Callable[[int], str]:
    if not folder.is_dir():
        raise UsageError(f"--tokenizer {folder}: no such folder")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"--tokenizer {folder}: cannot be loaded ({error})") from error
    return lambda token_id: str(tokenizer.decode([token_id]))
