"""Samples of the published formats (`samples/`), and what becomes of each (`expected/`, one file per format)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.data.formats import BenchmarkFiles

SAMPLES = Path(__file__).parent / "samples"
EXPECTED = Path(__file__).parent / "expected"


@dataclass(frozen=True)
class Row:
    """What a row must hold; of `extra_info` what is worth a check."""

    truth: str
    question: str
    extra_info: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A sample and what becomes of it.

    Attributes:
        name: of the format.
        annotations: below the folder of samples.
        videos: files that the user has, below the folder of videos.
        skipped: place and reason of each entry that is left out.
        published_as_parquet: the sample is JSON, which can be read, but the format is not.
    """

    name: str
    annotations: str
    videos: tuple[str, ...]
    rows: tuple[Row, ...]
    skipped: tuple[tuple[int, str], ...]
    published_as_parquet: bool


def _read(path: Path) -> Case:
    expected = json.loads(path.read_text(encoding="utf-8"))
    return Case(
        name=path.stem,
        annotations=expected["annotations"],
        videos=tuple(expected["videos"]),
        # A line of the question per line of the file.
        rows=tuple(Row(row["truth"], "\n".join(row["question"]), row["extra_info"]) for row in expected["rows"]),
        skipped=tuple((entry["row"], entry["reason"]) for entry in expected["skipped"]),
        published_as_parquet=expected.get("published_as_parquet", False),
    )


CASES = {path.stem: _read(path) for path in sorted(EXPECTED.glob("*.json"))}


def prepare(case: Case, folder: Path) -> BenchmarkFiles:
    """The sample in its published form, beside the videos that the user has: empty files, as nothing is opened."""
    for video in case.videos:
        path = folder / "videos" / video
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    annotations = SAMPLES / case.annotations
    if case.published_as_parquet:
        published = folder / f"{annotations.stem}.parquet"
        entries = json.loads(annotations.read_text(), object_hook=_with_bytes)
        pq.write_table(pa.Table.from_pylist(entries), published)
        annotations = published
    return BenchmarkFiles(annotations=annotations, videos=folder / "videos")


def _with_bytes(fields: dict[str, Any]) -> dict[str, Any]:
    """The content of a picture, which JSON has in base64."""
    return {**fields, "bytes": base64.b64decode(fields["bytes"])} if "bytes" in fields else fields
