"""`vvt replay`: reads the options, runs `verl_video_tools.replay.replay`, prints its dict as one JSON object.

Standard output carries the JSON and nothing else, and bad usage is one line on standard error and nothing else:
what libraries print meanwhile is held back, then shown on standard error unless the usage was bad.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.files import Overwrite, check_outputs
from verl_video_tools.cli.list_names import names_of
from verl_video_tools.cli.options import (
    Judging,
    Retrieval,
    Settings,
    ToolModelBaseURL,
    ToolModelSettings,
    command,
    tool_model_config,
)
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.output import hold_output

if TYPE_CHECKING:
    from verl_video_tools.services.tool_model import ScriptedToolModel, ToolModelConfig

LOST = 3
"""Exit code of a rollout that was lost, such as one of an unreadable video."""


@command
class Replay(Judging):
    """Run a method on one video under a scripted policy. Loop, tools and reward are real; prints one JSON object.
    Exits 3, with `error` in the object, if the video cannot be read."""

    method: Annotated[
        str,
        typer.Option(
            help="Method whose loop, tools and reward run, such as framethinker.", autocompletion=names_of("methods")
        ),
    ]
    video: Annotated[
        str | None, typer.Option(help="Video file; left out where --extra names images, or visuals as none.")
    ] = None
    question: Annotated[str, typer.Option(help="Text of the question, with its options.")]
    answer: Annotated[str, typer.Option(help="Ground truth.")]
    turns: Annotated[Path, typer.Option(help="JSON file: list of the assistant's texts, in order.")]
    extra: Annotated[str, typer.Option(metavar="JSON", help="Object merged into the row's extra_info.")] = "{}"
    settings: Settings = None
    processor: Annotated[
        str | None, typer.Option(help="Folder of a model's processor; token budgets apply only with it.")
    ] = None
    rung: Annotated[
        int | None,
        typer.Option(min=1, help="FrameMind: rung of its ladder, from 1; as --set rung=INT."),
    ] = None
    retrieval: Retrieval = None
    tool_model_base_url: ToolModelBaseURL = None
    tool_model_settings: ToolModelSettings = None
    tool_model_replies: Annotated[
        Path | None, typer.Option(help="Instead, a JSON file: list of that model's replies, in order.")
    ] = None
    html: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Also draw the rollout, as `vvt view` does, in this HTML file.")
    ] = None
    overwrite: Overwrite = False

    def run(self) -> int:
        check_outputs(texts=(self.html,), sources=(self.turns,), overwrite=self.overwrite)
        turns = read_turns(self.turns)
        extra = read_extra(self.extra)
        if self.video is None and not extra.keys() & {"image_paths", "visuals"}:
            raise UsageError("give --video, or --extra with image_paths, or with visuals as none")
        from verl_video_tools.methods.run_settings import with_run_settings

        settings = with_run_settings(self.processor, self.method, read_assignments(self.settings or []))
        if self.rung is not None:
            if "rung" in settings:
                raise UsageError("--rung and --set rung=... were both given: give one of them")
            settings["rung"] = self.rung
        judge, tool_model = self.judge(), self._tool_model()
        retrieval_fields = read_assignments(self.retrieval or [], "--retrieval")

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
        config = tool_model_config(self.tool_model_base_url, self.tool_model_settings)
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
