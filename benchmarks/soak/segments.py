"""The samples of a soak on disk: a file of JSON lines per segment, so that a soak can go on in another sitting.

The first line is the segment's start; then a line follows for each sample and each fault, and one for its end, which
is missing where the soak itself was killed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Segment:
    """One run of the recipe.

    Attributes:
        number: from 1.
        start: `commit` and `seed` of it.
        samples: each with `step`, `seconds` since the recipe was started, `processes` (as `sampler.Usage`) and
            `folders` (MB by name).
        faults: each with the `step` after which it was planted, and `fault`.
        outcome: how it ended; `interrupted` where nothing was written about that.
    """

    number: int
    start: dict[str, Any]
    samples: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    outcome: str = "interrupted"

    @property
    def seconds(self) -> float:
        """Time in which it was watched, from its first sample to its last."""
        return self.samples[-1]["seconds"] - self.samples[0]["seconds"] if self.samples else 0.0

    @property
    def steps(self) -> int:
        return self.samples[-1]["step"] - self.samples[0]["step"] + 1 if self.samples else 0


class SegmentWriter:
    """Appends to the file of a new segment, line by line.

    Args:
        start: as in `Segment`.
    """

    def __init__(self, folder: Path, start: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.number = 1 + max((number for number, _ in _files(folder)), default=0)
        self.path = folder / f"segment_{self.number:04d}.jsonl"
        self._file = self.path.open("x")
        self._write({"start": start})

    def sample(self, sample: Mapping[str, Any]) -> None:
        self._write({"sample": sample})

    def fault(self, step: int, fault: str) -> None:
        self._write({"fault": {"step": step, "fault": fault}})

    def close(self, outcome: str) -> None:
        self._write({"end": outcome})
        self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def read_segments(folder: Path) -> list[Segment]:
    """All segments in a folder, in order. A last line that was cut is left out."""
    return [_read(number, path) for number, path in _files(folder)]


def soaked_hours(segments: Sequence[Segment]) -> float:
    return sum(segment.seconds for segment in segments) / 3600


def _files(folder: Path) -> list[tuple[int, Path]]:
    """Number and file of each segment, in order."""
    return sorted((int(path.stem.removeprefix("segment_")), path) for path in folder.glob("segment_*.jsonl"))


def _read(number: int, path: Path) -> Segment:
    segment = Segment(number, {})
    for line in path.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        ((kind, value),) = json.loads(line).items()
        match kind:
            case "start":
                segment.start = value
            case "sample":
                segment.samples.append(value)
            case "fault":
                segment.faults.append(value)
            case "end":
                segment.outcome = value
            case _:
                raise ValueError(f"{path}: unknown kind of line {kind!r}; was it written by a later version?")
    return segment
