"""Faults that are no signal."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.faults.plan import FAULTS, ROWS_PER_STEP, Cell
from tests.faults.run import FaultRun, Plant, send


def plant_of(cell: Cell, train_files: str) -> Plant:
    """What plants the fault of this cell.

    Args:
        train_files: parquet file of the rows, which the steps take in order.
    """
    fault = FAULTS[cell.fault]
    if fault.target is not None:
        return send(fault.target, fault.signal)
    return {
        "records_fail": _records_fail,
        "tracker_cut": _tracker_cut,
        "disk_full": _disk_full,
        "video_gone": lambda run, step, moment: _video_gone(run, step, moment, train_files),
    }[cell.fault]


def undo(folder: Path) -> None:
    """Make the machine whole again; a resumed run is to find it so."""
    for checkpoint in folder.glob("global_step_*"):
        if checkpoint.is_mount():
            subprocess.run(["umount", str(checkpoint)], check=True)
    for video in (folder.parent / "demo_mixed" / "videos").glob("*.gone"):
        video.rename(video.with_suffix(".mp4"))


def _records_fail(run: FaultRun, step: int, moment: str) -> None:
    """A file stands where the folder of records was, until the step is over."""
    records = run.folder / "trajectories"
    kept = records.with_name("trajectories_kept")
    assert run.wait_for(f"{step} {moment}")
    records.rename(kept)
    records.touch()
    assert run.wait_for(f"{step + 1} generation")
    records.unlink()
    kept.rename(records)


def _tracker_cut(run: FaultRun, step: int, moment: str) -> None:
    """What a kill between opening and writing of the file leaves: verl empties it before it writes."""
    send("^bash ", "SIGTERM")(run, step, moment)
    run.process.wait()
    (run.folder / "latest_checkpointed_iteration.txt").write_text("")


def _disk_full(run: FaultRun, step: int, moment: str) -> None:
    """A file system of 1 MiB in place of the folder of the checkpoint."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    folder = run.folder / f"global_step_{step}"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    assert run.wait_for(f"{step} {moment}")


def _video_gone(run: FaultRun, step: int, moment: str, train_files: str) -> None:
    """That of the step's first row, before the step begins: frames that have been read are kept."""
    rows = pq.read_table(train_files).to_pylist()
    video = Path(rows[(step - 1) * ROWS_PER_STEP % len(rows)]["extra_info"]["video_path"])
    video.rename(video.with_suffix(".gone"))
    assert run.wait_for(f"{step} {moment}")
