"""Which checkpoint a run resumes from, where it was killed while it saved one, and those of earlier starts that go.

verl writes a checkpoint's parts into `global_step_<n>`, then the number into a file. It empties that file before it
writes, and takes what stands there for a number; where no such folder is, it starts from scratch without a word.
Of old checkpoints it removes `actor` alone, which holds the weights, and only of those that this start has written.
What an asynchronous run had in flight, images and all, stays in `transfer_queue`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from verl.utils.checkpoint.checkpoint_manager import get_checkpoint_tracker_filename

from verl_video_tools.core.files import whole_file


def name_whole_checkpoint(folder: Path, last_written: str) -> None:
    """Make verl's file name a checkpoint that is there, the newest whole one where it does not; say so.

    Without any whole checkpoint the file is removed, and the run starts from scratch.

    Args:
        folder: `trainer.default_local_dir`.
        last_written: the part of a checkpoint that verl writes last.
    """
    tracker = Path(get_checkpoint_tracker_filename(str(folder)))
    with_weights = {_step(path.parent): path.parent for path in folder.glob("global_step_*/actor")}
    whole = {step: path for step, path in with_weights.items() if (path / last_written).exists()}
    named = _text_of(tracker)
    if named.isdecimal() and int(named) in with_weights:
        return
    if not whole:
        if tracker.exists():
            print(f"[verl_video_tools] {tracker} names no checkpoint that is there ({named!r}); starting from scratch")
            tracker.unlink()
        return
    newest = max(whole)
    print(f"[verl_video_tools] {tracker} names no checkpoint that is there ({named!r}); resuming from {whole[newest]}")
    with whole_file(tracker) as partial:
        partial.write_text(str(newest))


def remove_old_checkpoints(folder: Path, max_checkpoints: int) -> None:
    """Remove weights and queue of all checkpoints but the newest, also of those that an earlier start has written.

    One that is younger than what verl's file names may be under way (`checkpoint.async_save`), and does not count.

    Args:
        folder: `trainer.default_local_dir`.
        max_checkpoints: `trainer.max_actor_ckpt_to_keep`, 1 or more.
    """
    named = _text_of(Path(get_checkpoint_tracker_filename(str(folder))))
    if not named.isdecimal():
        return
    with_weights = {_step(path.parent) for path in folder.glob("global_step_*/actor")}
    finished = sorted(step for step in with_weights if 0 <= step <= int(named))
    newest = finished[-max_checkpoints:]
    for path in folder.glob("global_step_*"):
        if 0 <= _step(path) <= int(named) and _step(path) not in newest:
            for part in ("actor", "transfer_queue"):
                shutil.rmtree(path / part, ignore_errors=True)


def _text_of(tracker: Path) -> str:
    return tracker.read_text().strip() if tracker.exists() else ""


def _step(checkpoint: Path) -> int:
    number = checkpoint.name.removeprefix("global_step_")
    return int(number) if number.isdecimal() else -1
