"""The checkpoints of a run as verl lays them out: which one it resumes from, which ones go, which one is exported.

verl writes a checkpoint's parts into `global_step_<n>`, then the number into a file. It empties that file before it
writes, and takes what stands there for a number; where no such folder is, it starts from scratch without a word.
Of old checkpoints it removes `actor` alone, which holds the weights, and only of those that this start has written.
What an asynchronous run had in flight, images and all, stays in `transfer_queue`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import write_text

LAST_CHECKPOINT = "latest_checkpointed_iteration.txt"
"""verl's file beside the checkpoints that holds the step of the last finished one."""
STEP_PREFIX = "global_step_"


def last_checkpoint(folder: Path) -> Path:
    """Folder of the last finished checkpoint of a run's actor, or of fine-tuning.

    Args:
        folder: `trainer.default_local_dir`, here and below.

    Raises:
        UsageError: there is none.
    """
    if not (folder / LAST_CHECKPOINT).is_file():
        raise UsageError(f"{folder} holds no finished checkpoint ({LAST_CHECKPOINT} is missing); train first")
    checkpoint = folder / f"{STEP_PREFIX}{_named(folder)}"
    if (checkpoint / "actor").is_dir():  # of reinforcement learning, which has more than one model
        return checkpoint / "actor"
    return checkpoint


def name_whole_checkpoint(folder: Path, last_written: str) -> None:
    """Make verl's file name a checkpoint that is there, the newest whole one where it does not; say so.

    Without any whole checkpoint the file is removed, and the run starts from scratch.

    Args:
        last_written: the part of a checkpoint that verl writes last.
    """
    file, named = folder / LAST_CHECKPOINT, _named(folder)
    checkpoints = _with_weights(folder)
    if named.isdecimal() and int(named) in checkpoints:
        return
    problem = f"[verl_video_tools] {file} names no checkpoint that is there ({named!r})"
    whole = [step for step, checkpoint in checkpoints.items() if (checkpoint / last_written).exists()]
    if whole:
        newest = max(whole)
        print(f"{problem}; resuming from {checkpoints[newest]}")
        write_text(file, str(newest))
    elif file.exists():
        print(f"{problem}; starting from scratch")
        file.unlink()


def remove_old_checkpoints(folder: Path, max_checkpoints: int) -> None:
    """Remove weights and queue of all checkpoints but the newest, also of those that an earlier start has written.

    One that is younger than what verl's file names may be under way (`checkpoint.async_save`), and does not count.

    Args:
        max_checkpoints: `trainer.max_actor_ckpt_to_keep`, 1 or more.
    """
    if not (named := _named(folder)).isdecimal():
        return
    finished = sorted(step for step in _with_weights(folder) if step <= int(named))
    newest = finished[-max_checkpoints:]
    for step, checkpoint in _by_step(folder).items():
        if step <= int(named) and step not in newest:
            for part in ("actor", "transfer_queue"):
                shutil.rmtree(checkpoint / part, ignore_errors=True)


def _named(folder: Path) -> str:
    """What stands in verl's file."""
    file = folder / LAST_CHECKPOINT
    return file.read_text().strip() if file.exists() else ""


def _by_step(folder: Path) -> dict[int, Path]:
    numbers = {path: path.name.removeprefix(STEP_PREFIX) for path in folder.glob(f"{STEP_PREFIX}*")}
    return {int(number): path for path, number in numbers.items() if number.isdecimal()}


def _with_weights(folder: Path) -> dict[int, Path]:
    return {step: path for step, path in _by_step(folder).items() if (path / "actor").exists()}
