"""Write a run's recorded rollouts as a data set of Hugging Face, with the frames that the model was shown.

    python examples/export_records/to_hugging_face.py outputs/framethinker_grpo rollouts_hf

`datasets.load_dataset("rollouts_hf")` reads the folder, and `push_to_hub` of what it returns publishes the rollouts.
First make sure that you may publish their questions and frames.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Image, Sequence, Value
from PIL import Image as Picture

from verl_video_tools.core.errors import VideoError
from verl_video_tools.core.types import Trajectory
from verl_video_tools.records.records import read_records
from verl_video_tools.video import Video, fit_box

SPLITS = {"train": "step_*.jsonl", "validation": "val_step_*.jsonl"}
TEXT, NUMBER = Value("string"), Value("float64")
FEATURES = Features(
    {
        "step": Value("int64"),
        "group": TEXT,
        "method": TEXT,
        "question": TEXT,
        "ground_truth": TEXT,
        "answer": TEXT,
        "score": NUMBER,
        "accuracy": NUMBER,
        "advantage": NUMBER,
        "stop_reason": TEXT,
        "turns": Sequence(TEXT),
        "observations": Sequence(TEXT),
        "seconds": Sequence(NUMBER),
        "images": Sequence(Image()),
        "trajectory": TEXT,
    }
)


def shown_frames(trajectory: Trajectory, video_path: str, side_pixels: int) -> list[tuple[float, Picture.Image]]:
    """Frames of the prompt and of the calls, in order, with their times in seconds; of a region the whole frame."""
    frames = [*trajectory.initial_frames, *(frame for call in trajectory.executed_calls() for frame in call.frames)]
    with Video(video_path) as video:
        width, height = fit_box(video.info.width, video.info.height, side_pixels, side_pixels)
        batch = video.frames_at_indices([frame.index for frame in frames], height, width)
    return [
        (time, Picture.fromarray(pixels))
        for time, pixels in zip(batch.timestamps_seconds, batch.frames_THWC, strict=True)
    ]


def read_rows(files: list[Path], side_pixels: int) -> Iterator[dict[str, Any]]:
    for line in (line for file in files for line in read_records(file)):
        trajectory: Trajectory = line["trajectory"]
        truth = line.get("ground_truth")
        try:
            frames = shown_frames(trajectory, line["extra_info"]["video_path"], side_pixels)
        except VideoError as error:
            print(f"no images: {error}")
            frames = []
        yield {
            "step": line.get("step"),
            "group": line.get("uid"),
            "method": trajectory.method,
            "question": trajectory.question,
            "ground_truth": truth if isinstance(truth, str) else json.dumps(truth),
            "answer": trajectory.answer,
            "score": line["reward"]["score"],
            "accuracy": line["reward"].get("acc"),
            "advantage": line.get("advantage"),
            "stop_reason": str(trajectory.stop_reason),
            "turns": [turn.text for turn in trajectory.turns],
            "observations": [turn.observation for turn in trajectory.turns],
            "seconds": [seconds for seconds, _ in frames],
            "images": [picture for _, picture in frames],
            "trajectory": json.dumps(trajectory.to_dict()),
        }


def export(run: Path, out: Path, side_pixels: int = 256) -> None:
    """Write `train.parquet`, and `validation.parquet` if the run recorded held-out rollouts."""
    out.mkdir(parents=True, exist_ok=True)
    for split, pattern in SPLITS.items():
        arguments = {"files": sorted((run / "trajectories").glob(pattern)), "side_pixels": side_pixels}
        with tempfile.TemporaryDirectory() as cache:  # the usual cache would not notice further steps of the run
            if arguments["files"]:
                rows = Dataset.from_generator(read_rows, FEATURES, cache_dir=cache, gen_kwargs=arguments)
                rows.to_parquet(out / f"{split}.parquet")
                print(f"{split}: {len(rows)} rollouts")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write recorded rollouts as a data set of Hugging Face.")
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--side-pixels", type=int, default=256, help="longer side of an image at most")
    options = parser.parse_args()
    export(options.run, options.out, options.side_pixels)


if __name__ == "__main__":
    main()
