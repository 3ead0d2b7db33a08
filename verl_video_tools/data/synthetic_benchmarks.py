"""The demonstration's test split in the files of published benchmarks, to try an evaluation on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.synthetic.benchmarks import (
    AskedQuestion,
    captions,
    charades_sta_lines,
    longvideobench_entry,
    video_mme_entry,
)

FILES = {"video-mme": "video_mme.parquet", "longvideobench": "lvb_val.json", "charades-sta": "charades_sta_test.txt"}
"""Annotations by the benchmark's name."""
SUBTITLES = "subtitles"
"""Folder of LongVideoBench's subtitles."""
_MOST_QUESTIONS = 96
"""In each file."""


def write_benchmarks(asked: Sequence[AskedQuestion], folder: Path) -> list[str]:
    """Write `FILES` and `SUBTITLES` into a folder, with the first of the questions and things to be found.

    Returns:
        Paths of the files, relative to the folder.
    """
    videos = {one.video_path: one.spec for one in asked}
    asked = asked[:_MOST_QUESTIONS]
    pq.write_table(pa.Table.from_pylist(list(map(video_mme_entry, asked))), folder / FILES["video-mme"])
    entries = list(map(longvideobench_entry, asked))
    _write_json(entries, folder / FILES["longvideobench"])
    (folder / SUBTITLES).mkdir(exist_ok=True)
    subtitles = {f"{SUBTITLES}/{entry['subtitle_path']}": one.spec for entry, one in zip(entries, asked, strict=True)}
    for name, spec in subtitles.items():
        _write_json(captions(spec), folder / name)
    lines = (line for path, spec in videos.items() for line in charades_sta_lines(spec, path))
    text = "".join(f"{line}\n" for line in islice(lines, _MOST_QUESTIONS))
    (folder / FILES["charades-sta"]).write_text(text, encoding="utf-8")
    return [*FILES.values(), *subtitles]


def _write_json(content: object, path: Path) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
