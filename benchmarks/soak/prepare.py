"""What a soak trains on: the synthetic world, a cold-started tiny model, and rows of all methods."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.soak.run import DEMO, REPO, ROWS
from verl_video_tools.data.synthetic_rows import load_rows, make_row, question_from_row

_JUDGED_METHOD = "longvt"


def prepare(out: Path) -> None:
    """Make in a soak's folder what is missing."""
    if not (out / "mixed_sft" / "huggingface" / "config.json").exists():
        environment = {
            **os.environ,
            "DEVICE": "cpu",
            "PYTHON": sys.executable,
            "OUTPUT_DIR": str(out),
            "OMP_NUM_THREADS": str(os.cpu_count() or 1),
        }
        command = [sys.executable, "-m", "verl_video_tools.launch.supervise", "--"]
        command += ["bash", str(REPO / "recipes" / "mixed_sft.sh")]
        out.mkdir(parents=True, exist_ok=True)
        with (out / "prepare.log").open("wb") as log:
            subprocess.run(command, cwd=out, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True)
    if not (out / ROWS).exists():
        rows = load_rows(out / DEMO / "train.parquet")
        rows = [_judged(row) if row["agent_name"] == _JUDGED_METHOD else row for row in rows]
        # The rows of a video follow each other, and a step takes two: without that video it would have none left.
        random.Random(0).shuffle(rows)
        pq.write_table(pa.Table.from_pylist(rows), out / ROWS)


def _judged(row: dict) -> dict:
    """The row's question without options, so that a judge is asked."""
    spec, question = question_from_row(row)
    info = row["extra_info"]
    path, index, split = Path(info["video_path"]), info["index"], info["split"]
    return make_row(spec, question, path, index, split, row["agent_name"], open_ended=True)
