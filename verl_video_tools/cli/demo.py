"""`vvt demo`: the synthetic world's files in one folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from verl_video_tools.core.errors import SetupError, UsageError, writing
from verl_video_tools.synthetic import Family


def run(
    *,
    out: Path,
    train_videos: int,
    test_videos: int,
    questions_per_video: int,
    seed: int,
    agent_names: list[str],
    open_ended: bool,
    needle: bool,
    family: Family,
) -> None:
    """Makes videos and rows, copies `family`'s base model, its short prompts and the encoder of texts and frames to
    `out`, and prints where each is.

    A second run with the same options leaves the videos and rows as they are.

    Raises:
        SetupError: the installation lacks the base model or the encoder.
        UsageError: more different questions are wanted than a video allows, or `out` cannot be written.
    """
    from verl_video_tools.cli.progress import progress_bars
    from verl_video_tools.data.synthetic_rows import VIDEO_MME_FILE, make_demo
    from verl_video_tools.methods import METHOD_NAMES, get_method
    from verl_video_tools.methods.toolkit.synthetic import write_prompt
    from verl_video_tools.synthetic import base_model_dir, clip_dir

    try:
        base, clip = base_model_dir(family), clip_dir()  # before the videos: a broken installation should fail at once
    except FileNotFoundError as error:
        raise SetupError(str(error)) from error
    with writing(out, "name a folder that can be made and written"):
        try:
            with progress_bars("videos") as (progress,):
                folder = make_demo(
                    out,
                    num_train_videos=train_videos,
                    num_test_videos=test_videos,
                    questions_per_video=questions_per_video,
                    seed=seed,
                    agent_names=agent_names,
                    open_ended=open_ended,
                    needle=needle,
                    progress=progress,
                )
        except ValueError as error:
            raise UsageError(str(error)) from error
        shutil.copytree(base, folder / "base", dirs_exist_ok=True)
        for name in METHOD_NAMES:
            write_prompt(type(get_method(name)), folder / "prompts")
        shutil.copytree(clip, folder / "clip", dirs_exist_ok=True)
    print(f"training rows  {folder / 'train.parquet'}")
    print(f"test rows      {folder / 'test.parquet'}")
    print(f"as Video-MME   {folder / VIDEO_MME_FILE}")
    print(f"base model     {folder / 'base'}")
    print(f"prompts        {folder / 'prompts'}")
    print(f"text to frame  {folder / 'clip'}")
