"""Commands about what the package brings: `vvt demo`, `vvt list` and `vvt path`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.names import Kind, names_of, texts_of
from verl_video_tools.cli.options import command
from verl_video_tools.core.errors import SetupError, UsageError, writing
from verl_video_tools.synthetic import Family


@command
class Demo:
    """Make synthetic videos, rows and a tiny base model. The recipes train on them where there is no GPU."""

    out: Annotated[Path, typer.Option(help="Folder for videos, rows and base model; made if missing.")]
    train_videos: Annotated[int, typer.Option(min=1, help="Videos of the training split.")] = 96
    test_videos: Annotated[
        int | None,
        typer.Option(min=1, help="Videos of the test split; default: 24, or 134 with --needle or --spatial."),
    ] = None
    questions_per_video: Annotated[int, typer.Option(min=1, help="Questions asked about each video.")] = 4
    seed: Annotated[int, typer.Option(min=0, help="Seed of videos and questions.")] = 0
    agent_name: Annotated[
        list[str] | None,
        typer.Option(
            help="Method that the rows select; repeat it to divide them among several; default: framethinker."
        ),
    ] = None
    open_ended: Annotated[
        bool, typer.Option("--open-ended", help="Ask in seconds and without options; training then needs a judge.")
    ] = False
    needle: Annotated[
        bool,
        typer.Option(
            "--needle", help="Videos of 1 to 10 minutes whose questions depend on events between the first frames."
        ),
    ] = False
    spatial: Annotated[
        bool,
        typer.Option("--spatial", help="Videos whose questions need a part of the video, then a part of a frame."),
    ] = False
    family: Annotated[Family, typer.Option(help="Architecture of the base model.")] = "qwen2_5_vl"

    def run(self) -> None:
        from verl_video_tools.cli.progress import progress_bars
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
        made = {"training rows": "train.parquet", "test rows": "test.parquet", "as video-mme": VIDEO_MME}
        made |= {"base model": "base", "prompts": "prompts", "text to frame": "clip"}
        for what, name in made.items():
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
