"""Probes all videos of a data set in parallel, so that bad files are known before a run meets them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.core.errors import UsageError, VideoError
from verl_video_tools.data.formats.entries import VIDEO_SUFFIXES
from verl_video_tools.video.probe import probe

Record = dict[str, Any]
"""A line of the report: ``path``, ``ok`` and either ``probe`` (fields of `VideoProbe`), ``error`` and ``message``, or,
for a file with damaged frames, all of them."""


def find_videos(source: Path) -> list[Path]:
    """The video files that a source names, each once, in its order.

    Args:
        source: a folder (searched for video files, subfolders included), a parquet or JSON-lines file of rows (their
            ``extra_info.video_path``, or ``video_path``), a ``.txt`` file with one path per line, or a video file.

    Raises:
        UsageError: the source cannot be read, or names no video.
    """
    try:
        if not source.exists():
            raise UsageError(f"{source}: no such file or folder")
        if source.is_dir():
            found = sorted(path for path in source.rglob("*") if path.suffix.lower() in VIDEO_SUFFIXES)
        elif source.suffix.lower() in VIDEO_SUFFIXES:
            found = [source]
        elif source.suffix == ".parquet":
            found = _paths_of_rows(source, _parquet_rows(source))
        elif source.suffix == ".jsonl":
            with source.open(encoding="utf-8-sig") as lines:
                found = _paths_of_rows(source, (json.loads(line) for line in lines if line.strip()))
        elif source.suffix == ".txt":
            found = [Path(line.strip()) for line in source.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
        else:
            raise UsageError(f"{source}: expected a folder, .parquet, .jsonl, a .txt list of paths, or a video file")
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{source}: cannot be read: {error}") from error
    if not found:
        raise UsageError(f"{source}: names no video file")
    return list(dict.fromkeys(found))


def _parquet_rows(path: Path) -> Iterator[Any]:
    file = pq.ParquetFile(path)
    columns = [name for name in ("extra_info", "video_path") if name in file.schema_arrow.names]
    for batch in file.iter_batches(columns=columns):
        yield from batch.to_pylist()


def _paths_of_rows(source: Path, rows: Iterable[Any]) -> list[Path]:
    paths = []
    for number, row in enumerate(rows):
        columns = row if isinstance(row, dict) else {}
        extra_info = columns.get("extra_info")
        path = extra_info.get("video_path") if isinstance(extra_info, dict) else None
        path = path or columns.get("video_path")
        if not isinstance(path, str):
            raise UsageError(f"{source}: row {number} has no extra_info.video_path")
        paths.append(Path(path))
    return paths


def probe_files(paths: Iterable[Path], jobs: int, deadline_seconds: float, decode: bool = False) -> Iterator[Record]:
    """Probe files in `jobs` threads; yields a record per file as it is done.

    Args:
        deadline_seconds: time per file.
        decode: decode every frame as well, and count a file with damaged ones as bad.
    """
    executor = ThreadPoolExecutor(jobs)
    try:
        for future in as_completed([executor.submit(_probe, path, deadline_seconds, decode) for path in paths]):
            yield future.result()
    finally:
        executor.shutdown(cancel_futures=True)


def _probe(path: Path, deadline_seconds: float, decode: bool) -> Record:
    try:
        found = probe(path, deadline_seconds, check_decoding=decode)
    except Exception as error:  # whatever is wrong with one file, the others are probed
        message = str(error) if isinstance(error, VideoError) else f"{path}: {error}"
        return {"path": str(path), "ok": False, "error": type(error).__name__, "message": message}
    record = {"path": str(path), "ok": True, "probe": {**asdict(found), "info": found.info.to_dict()}}
    if found.num_damaged_frames:
        message = f"{path}: {found.num_damaged_frames} of {found.info.num_frames} frames cannot be decoded"
        record |= {"ok": False, "error": "DamagedFrames", "message": message}
    return record
