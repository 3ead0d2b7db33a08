"""Which checkpoint a run resumes from, where it was killed while it saved one.

verl writes a checkpoint's parts into `global_step_<n>`, then the number into a file. It empties that file before it
writes, and takes what stands there for a number; where no such folder is, it starts from scratch without a word.
"""

from __future__ import annotations

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
    whole = {_step(path.parent): path.parent for path in folder.glob(f"global_step_*/{last_written}")}
    named = tracker.read_text().strip() if tracker.exists() else ""
    if named.isdecimal() and (folder / f"global_step_{named}").is_dir():
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


def _step(checkpoint: Path) -> int:
    number = checkpoint.name.removeprefix("global_step_")
    return int(number) if number.isdecimal() else -1
