"""What a data loader of fine-tuning holds in shared memory: rows of LongVT's size, by verl's collator.

    python -m benchmarks.sft_loader [--rows 8] [--workers 2]

Loads rows of 752 frames of 280x168 through worker processes, once with the processor's float32 tensors, as verl's own
data set yields them, and once as ours does, and prints the most bytes of /dev/shm in use above those before, for each
row that waits. Then the arithmetic for a node of 8 devices with the recipe's workers and verl's prefetching.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoProcessor
from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator

from verl_video_tools.core.types import FrameRecord, ImagePart
from verl_video_tools.synthetic import base_model_dir
from verl_video_tools.verl_plugin.pixel_values import HeldPixelValues

NUM_FRAMES, WIDTH, HEIGHT = 752, 280, 168
DEVICES, WORKERS, PREFETCH = 8, 8, 2
"""Of a node, for the arithmetic: loaders, worker processes of each (`NUM_WORKERS`), batches that a worker prepares."""
PIXEL_LIMITS = {"min_pixels": 784, "max_pixels": 50176}


class Rows(Dataset):
    """LongVT's largest rollout, without the decoding."""

    def __init__(self, num_rows: int, held: bool) -> None:
        self.num_rows, self.held = num_rows, held
        self.image_processor = AutoProcessor.from_pretrained(base_model_dir()).image_processor

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        pixels = np.random.default_rng(index).integers(0, 256, (NUM_FRAMES, HEIGHT, WIDTH, 3), dtype=np.uint8)
        images = [ImagePart(FrameRecord(i, float(i), WIDTH, HEIGHT), frame) for i, frame in enumerate(pixels)]
        values = HeldPixelValues(images, self.image_processor, PIXEL_LIMITS, torch.float32)
        return {
            "input_ids": torch.zeros(50_000 + index, dtype=torch.long),
            "multi_modal_inputs": {"pixel_values": values if self.held else values.resolve()},
        }


def most_bytes(num_rows: int, num_workers: int, held: bool) -> int:
    """Of shared memory, while all rows wait to be read: each worker prepares its share ahead."""
    loader = DataLoader(
        Rows(num_rows, held),
        num_workers=num_workers,
        prefetch_factor=max(1, num_rows // num_workers),
        collate_fn=SFTTensorCollator(DatasetPadMode.NO_PADDING),
    )
    before = shutil.disk_usage("/dev/shm").used
    batches = iter(loader)
    most, deadline = 0, time.monotonic() + 120
    steady_since, last = time.monotonic(), -1
    while time.monotonic() < deadline and time.monotonic() - steady_since < 10:
        used = shutil.disk_usage("/dev/shm").used - before
        if used != last:
            steady_since, last = time.monotonic(), used
        most = max(most, used)
        time.sleep(0.1)
    assert sum(1 for _ in batches) == num_rows
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    result: dict[str, Any] = {"frames": NUM_FRAMES, "width": WIDTH, "height": HEIGHT}
    for name, held in (("tensors", False), ("images", True)):
        most = most_bytes(arguments.rows, arguments.workers, held)
        per_row = most / arguments.rows
        result[name] = {
            "megabytes_per_row": round(per_row / 1e6),
            "node_gigabytes_by_arithmetic": round(per_row * DEVICES * WORKERS * PREFETCH / 1e9, 1),
        }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
