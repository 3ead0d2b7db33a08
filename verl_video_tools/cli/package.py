"""Commands about what is installed: `vvt demo`, `vvt list`, `vvt path` and `vvt check-method`."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from verl_video_tools.cli.names import Kind, names_of, texts_of
from verl_video_tools.cli.options import Settings, command, progress_bars
from verl_video_tools.cli.records import read_turns
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import SetupError, UsageError, writing
from verl_video_tools.core.files import hold_output
from verl_video_tools.synthetic import Family

if TYPE_CHECKING:
    from verl_video_tools.testing.run import Finding


@command
class Demo:
    """Make synthetic videos, rows and a tiny base model. Without a GPU, the recipes train on them."""

    out: Annotated[Path, typer.Option(help="Folder for videos, rows and base model. It is made if it does not exist.")]
    train_videos: Annotated[int, typer.Option(min=1, help="Number of videos in the training split.")] = 96
    test_videos: Annotated[
        int | None,
        typer.Option(min=1, help="Number of videos in the test split; default: 24, or 134 with --needle or --spatial."),
    ] = None
    questions_per_video: Annotated[int, typer.Option(min=1, help="Number of questions about each video.")] = 4
    seed: Annotated[int, typer.Option(min=0, help="Seed of videos and questions.")] = 0
    agent_name: Annotated[
        list[str] | None,
        typer.Option(
            help="Method of the rows; repeat it to divide the rows among several methods; default: framethinker."
        ),
    ] = None
    open_ended: Annotated[
        bool, typer.Option("--open-ended", help="Ask in seconds and without options; training then needs a judge.")
    ] = False
    needle: Annotated[
        bool,
        typer.Option(
            "--needle", help="Videos of 1 to 10 minutes whose questions depend on events between the initial frames."
        ),
    ] = False
    spatial: Annotated[
        bool,
        typer.Option("--spatial", help="Videos whose questions need a part of the video, then a part of a frame."),
    ] = False
    family: Annotated[Family, typer.Option(help="Architecture of the base model.")] = "qwen2_5_vl"

    def run(self) -> None:
        from verl_video_tools.data.synthetic_rows import VIDEO_MME, check_free, make_demo
        from verl_video_tools.methods import METHOD_NAMES, method_class, method_names
        from verl_video_tools.methods.toolkit.oracle import write_prompt
        from verl_video_tools.synthetic import base_model_dir, clip_dir

        agent_names = self.agent_name or ["framethinker"]
        try:
            # Before the videos: a broken installation should fail at once.
            base, clip = base_model_dir(self.family), clip_dir()
        except FileNotFoundError as error:
            raise SetupError(str(error)) from error
        with writing(self.out, "name a folder that can be made and written"):
            check_free(self.out)
            # Rows may name loops that are no method.
            for name in (*METHOD_NAMES, *(set(agent_names) & set(method_names()) - set(METHOD_NAMES))):
                write_prompt(method_class(name), self.out / "prompts")
            try:
                with progress_bars("videos") as (progress,):
                    folder = make_demo(
                        self.out,
                        num_train_videos=self.train_videos,
                        num_test_videos=self.test_videos or (134 if self.needle or self.spatial else 24),
                        questions_per_video=self.questions_per_video,
                        seed=self.seed,
                        agent_names=agent_names,
                        open_ended=self.open_ended,
                        needle=self.needle,
                        spatial=self.spatial,
                        progress=progress,
                    )
            except ValueError as error:
                raise UsageError(str(error)) from error
            shutil.copytree(base, folder / "base", dirs_exist_ok=True)
            shutil.copytree(clip, folder / "clip", dirs_exist_ok=True)
        outputs = {"training rows": "train.parquet", "test rows": "test.parquet", "as video-mme": VIDEO_MME}
        outputs |= {"base model": "base", "prompts": "prompts", "text to frame": "clip"}
        for what, name in outputs.items():
            print(f"{what:18}{folder / name}")


def names_of_listed(context: typer.Context, incomplete: str) -> list[str]:
    """The same, for the second argument of `vvt list`, whose first one is the kind."""
    kind = context.params.get("kind")
    return names_of(str(kind))(incomplete) if kind else []


@command
class ListNames:
    """List methods, formats and other names, or describe one."""

    kind: Annotated[Kind, typer.Argument(help="What to list.")]
    name: Annotated[str | None, typer.Argument(help="One of them.", autocompletion=names_of_listed)] = None

    def run(self) -> None:
        names = texts_of(self.kind)
        if self.name is None:
            width = max(map(len, names))
            for name, (line, _) in names.items():
                print(f"{name:{width}}  {line}")
        elif self.name in names:
            print(names[self.name][1])
        else:
            raise UsageError(f"there is no name {self.name!r} among the {self.kind}; they are: {', '.join(names)}")


@command
class ConfigPath:
    """Print the path of a packaged configuration file. For use in a verl command line."""

    name: Annotated[str, typer.Argument(help="agent-loops, tools, group-router, hermes-template or longvt-template.")]

    def run(self) -> None:
        from verl_video_tools.config import config_path

        print(config_path(self.name))


@command
class CheckMethod:
    """Check that a method has the properties that training needs. No model is needed. Exits 1 if one fails."""

    method: Annotated[
        str | None,
        typer.Argument(metavar="NAME|module:Class", help="Method to check.", autocompletion=names_of("methods")),
    ] = None
    all_methods: Annotated[bool, typer.Option("--all", help="Check every method that is installed.")] = False
    turns: Annotated[
        Path | None, typer.Option(help="JSON file: a list of example turns that call each tool and answer.")
    ] = None
    settings: Settings = None
    processor: Annotated[
        str | None, typer.Option(help="Folder of the model whose processor counts the tokens of prompts.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings by method as one JSON object.")] = False

    def run(self) -> int:
        if (self.method is None) != self.all_methods:
            raise UsageError("give either the name of a method or --all")
        if self.all_methods and (self.turns or self.settings):
            raise UsageError("--turns and --set are for one method: give its name instead of --all")
        from verl_video_tools.methods import method_names

        names = [self.method] if self.method is not None else list(method_names())
        with TemporaryDirectory(prefix="check_method_") as folder:
            findings_of = {name: self._findings(name, Path(folder)) for name in names}
            if self.as_json:
                outputs = {name: [asdict(finding) for finding in findings] for name, findings in findings_of.items()}
                print(json.dumps(outputs, indent=2, ensure_ascii=True))
                return int(any(one["status"] == "fail" for findings in outputs.values() for one in findings))
            failed = [_print(name, findings) for name, findings in findings_of.items()]
        return int(any(failed))

    def _findings(self, name: str, folder: Path) -> Iterator[Finding]:
        from verl_video_tools.methods import method_class
        from verl_video_tools.testing.run import findings
        from verl_video_tools.testing.world import World

        model = None
        if self.processor is not None:
            with hold_output():  # libraries print
                from verl_video_tools.verl_plugin.model_tokens import load_model_tokens

                model = load_model_tokens(self.processor)
        turns = [] if self.turns is None else read_turns(self.turns)
        settings = read_assignments(self.settings or [])
        return findings(method_class(name), World(folder), turns, settings, model)


def _print(name: str, findings: Iterator[Finding]) -> bool:
    """Print the findings as they come, and then in a line how many a failed one has kept from being checked; returns
    whether one failed."""
    counts, unchecked = Counter[str](), Counter[str]()
    print(f"{name}:")
    for finding in findings:
        counts[finding.status] += 1
        if finding.cause is not None:
            unchecked[finding.cause] += 1
            continue
        reason = "" if finding.reason is None else f": {' '.join(finding.reason.split())}"
        print(f"  {finding.status:14}  {finding.group}/{finding.property}{reason}", flush=True)
    for cause, number in unchecked.items():
        print(f"  not applicable  {number} more properties are not checked, because {cause} does not hold")
    print(f"{name}: {counts['pass']} pass, {counts['fail']} fail, {counts['not applicable']} not applicable")
    return counts["fail"] > 0
