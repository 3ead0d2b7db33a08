"""The cold-start rows that the scripted experts write, made as `vvt data export-sft` does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from tests.recorded.scripts import MODES
from verl_video_tools.cli.main import run as vvt
from verl_video_tools.core.config import read_assignments
from verl_video_tools.data.sft import export_sft
from verl_video_tools.services.retrieval import RetrievalConfig, local

SETTINGS = (
    "direct.initial_frames=8",
    "framethinker.answer_grading=choice",
    "videozoomer.initial_frames=8",
    "videozoomer.call_frames=32",
    "longvt.initial_frames=8",
    "videobrain.initial_frames=8",
    "framemind.low=[8,56]",
    "framemind.high=[4,112]",
    "framemind.tool_side_pixels=56",
    "framemind.label_decimals=1",
)
"""As the config groups `synthetic` set the methods."""


def sft_lines(folder: Path) -> Iterator[str]:
    """Lines of JSON: the columns of the parquet file, then one line per row, wrong answers included.

    Args:
        folder: a folder for the demo's files; its path is replaced by `FOLDER` in the lines.
    """
    demo, out = folder / "demo", folder / "sft.parquet"
    agents = [f"--agent-name={method}" for method in MODES]
    few = ["--train-videos=3", "--test-videos=1", "--questions-per-video=4"]
    assert vvt(["demo", f"--out={demo}", *few, *agents]) == 0
    export_sft(
        demo / "train.parquet",
        out,
        answers_in_words=True,
        keep_wrong=True,
        questions_per_video=12,
        imperfection=0.1,
        settings=read_assignments(SETTINGS),
        retriever=local(RetrievalConfig(model=f"{demo}/clip")),
    )
    table = pq.read_table(out)
    yield json.dumps({"columns": {field.name: str(field.type) for field in table.schema}})
    for number, row in enumerate(table.to_pylist()):
        # Which frames an encoder finds most similar may depend on the processor's arithmetic; how many does not.
        row["retrieved_frames"] = [[len(found) for found in of_call] for of_call in row["retrieved_frames"]]
        line = {"id": f"{row['agent_name']}/{number}", "row": row}
        yield json.dumps(line, ensure_ascii=False).replace(str(demo), "FOLDER")
