"""Rows for two steps, about one video made here: `python -m benchmarks.first_gpu.rows FOLDER METHOD NUM_ROWS`.

A video of real size and length, so that a step has a real step's frames and tokens; the questions have no answer to
be seen, and nothing is to be learned from them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.video.long_files import LongVideo, write_long_video
from verl_video_tools.core.types import VideoInfo

VIDEO = LongVideo("first_gpu", 640, 360, copy_seconds=20, copies=45)
INFO = VideoInfo(VIDEO.copy_seconds * VIDEO.copies, VIDEO.num_frames, VIDEO.fps, VIDEO.width, VIDEO.height)
FILE_NAME = "train.parquet"
OPTIONS = ("It grows.", "It moves to the left.", "It changes colour.", "It disappears.")


def make_rows(video: LongVideo, folder: Path, method: str, num_rows: int) -> Path:
    """Write video and rows (docs/rows.md); each row asks about another minute, so that no two prompts are alike."""
    import pyarrow as pa  # parts without rows run where it is missing
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    path = write_long_video(video, folder).resolve()
    duration_seconds = video.copy_seconds * video.copies
    step_seconds = duration_seconds / num_rows

    def row(number: int) -> dict[str, Any]:
        start_seconds = number * step_seconds
        options = [f"{letter}. {text}" for letter, text in zip("ABCD", OPTIONS, strict=True)]
        question = "\n".join([f"What happens to the moving object after {start_seconds:.1f} seconds?", *options])
        asked = {"question": question, "question_type": "mc", "options": list(OPTIONS)}
        return {
            "data_source": "first_gpu",
            "agent_name": method,
            "prompt": [{"role": "user", "content": question}],
            "ability": "video_qa",
            "reward_model": {"style": "rule", "ground_truth": "ABCD"[number % 4]},
            "extra_info": {
                **asked,
                "video_path": str(path),
                "video_segment": [start_seconds, min(duration_seconds, start_seconds + step_seconds)],
                "classification": ("direct", "active")[number % 2],
                "index": number,
                "split": "train",
            },
        }

    table = pa.Table.from_pylist([row(number) for number in range(num_rows)])
    pq.write_table(table, folder / FILE_NAME)
    return folder / FILE_NAME


if __name__ == "__main__":
    print(make_rows(VIDEO, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
