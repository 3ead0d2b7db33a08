"""Trajectories of a run as JSON lines: one file per step, one line per rollout. Held-out rollouts have separate files.

The viewer, the report, exports and filters read them. A line holds the trajectory, the reward breakdown, the row it
came from, its advantage, and, with `record_tokens`, its training sequences: tokens, mask and both log-probabilities.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import whole_file
from verl_video_tools.core.types import Trajectory

RECORDS_NAME = "trajectories"
"""Folder of the records in a run's folder (`trainer.default_local_dir`)."""


class RecordWriter:
    """Writes `<folder>/step_<n>.jsonl`, or `val_step_<n>.jsonl`; a file appears only when it is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, step: int, lines: Iterable[Mapping[str, Any]], validation: bool = False) -> Path:
        path = self.folder / f"{'val_' if validation else ''}step_{step:06d}.jsonl"
        with whole_file(path) as partial, partial.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for line in lines:
                file.write(json.dumps(line, ensure_ascii=False, default=_jsonable) + "\n")
        return path


def _jsonable(value: Any) -> Any:
    """Rows may have columns of any type; dates, decimals and others are written as text."""
    return value.to_dict() if isinstance(value, Trajectory) else str(value)


def step_files(folder: Path, *, validation: bool = False) -> list[Path]:
    """Files of a run's steps in order.

    Args:
        validation: the files of rollouts on validation rows, `val_step_<n>.jsonl`.
    """
    return sorted(folder.glob("val_step_*.jsonl" if validation else "step_*.jsonl"))


def step_of(file: Path) -> int:
    """The step in the name of a file of records; -1 if the name has none."""
    number = file.stem.rpartition("_")[2]
    return int(number) if number.isdecimal() else -1


def archive_stale_records(folder: Path, last_step: int) -> tuple[int, Path] | None:
    """Move the files of all steps after this one into a new folder beside them, `abandoned_<n>`, where no reader looks.

    A run that resumes trains later steps again, and the earlier records of these steps are of a policy that was lost.
    The validation at this step stays, because it measured the policy that continues.

    Args:
        folder: of records.

    Returns:
        The number of files and their new folder; None if there is no such step.

    Raises:
        OSError: a file cannot be moved. The last steps move first, so that an error leaves no gap between steps.
    """
    files = [*step_files(folder), *step_files(folder, validation=True)]
    later = sorted((file for file in files if step_of(file) > last_step), key=step_of, reverse=True)
    if not later:
        return None
    number = 1
    while (abandoned := folder / f"abandoned_{number}").exists():
        number += 1
    abandoned.mkdir()
    for file in later:
        file.rename(abandoned / file.name)
    return len(later), abandoned


def records_folder(run: Path) -> Path:
    """Folder of a run's records: `trajectories` in the run's folder, or that folder itself.

    Args:
        run: either of the two. If neither holds a step, the result is the folder that a run writes to.
    """
    below = run / RECORDS_NAME
    if not has_steps(below) and has_steps(run):
        return run
    return below if below.is_dir() else run


def run_folder(path: Path) -> Path:
    """A run's folder, also from the folder of its records or from one file of records."""
    folder = path.parent if path.is_file() else path
    return folder.parent if folder.resolve().name == RECORDS_NAME else folder


def has_steps(folder: Path) -> bool:
    """Whether a folder of records holds a step of training or of validation."""
    return bool(step_files(folder) or step_files(folder, validation=True))


def read_records(path: Path, *, must_exist: bool = False) -> Iterator[dict[str, Any]]:
    """All lines of a run in order; `line["trajectory"]` is a `Trajectory`.

    Args:
        path: folder of a training run or of its records (`step_*.jsonl`), or one file of records. An incomplete last
            line is skipped.
        must_exist: a path without records is an error; otherwise it has no lines.

    Raises:
        UsageError: there is no such file, or a line cannot be read.
    """
    if must_exist and not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if must_exist and path.is_dir() and not step_files(records_folder(path)):
        raise UsageError(f"{path} holds no recorded rollouts (step_*.jsonl)")
    return (line for file in record_files(path) for line in _read_file(file))


def record_files(path: Path) -> list[Path]:
    """The existing files that `read_records` reads, in order."""
    return [path] if path.is_file() else step_files(records_folder(path))


def _read_file(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, text in enumerate(file, start=1):
            if not text.endswith(b"\n"):  # incomplete: it is still being written, or the disk was full
                break
            try:
                line: dict[str, Any] = json.loads(text)
                line["trajectory"] = Trajectory.from_dict(line["trajectory"])
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise UsageError(f"{path}, line {number}: not a recorded rollout ({error!r:.200})") from error
            yield line
