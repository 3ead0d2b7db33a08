"""What a data loader of fine-tuning holds in shared memory: rows of LongVT's size, by verl's collator.

    python -m benchmarks.sft_loader [--rows 4] [--workers 2]

Loads rows of 752 frames of 280x168 through worker processes, and prints the most bytes of /dev/shm that these have
open: a few rows with the processor's float32 tensors, as verl's own data set yields them, and as ours yields them all
that the loader of one device has ready with the recipe's workers and verl's prefetching. A node has eight such loaders.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterable
from pathlib import Path
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
DEVICES, WORKERS, PREFETCH, BATCH = 8, 1, 2, 8
"""Of the group longvt_sft on one node: loaders of a node, worker processes of each (`data.num_workers`), batches that
each of these prepares, and rows of a batch of one device."""
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


def shared_bytes(pids: Iterable[int]) -> int:
    """Of the files in shared memory that these processes have open, each once. torch has taken their names away."""
    sizes: dict[int, int] = {}
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if os.readlink(file).startswith("/dev/shm/"):
                    found = file.stat()
                    sizes[found.st_ino] = found.st_blocks * 512
            except FileNotFoundError:
                continue  # closed meanwhile
    return sum(sizes.values())


def most_bytes(num_rows: int, num_workers: int, batch_size: int, held: bool) -> int:
    """Of the loader's shared memory, while all rows wait to be read: each worker prepares its share ahead."""
    loader = DataLoader(
        Rows(num_rows, held),
        batch_size=batch_size,
        num_workers=num_workers,
        prefetch_factor=max(1, num_rows // num_workers // batch_size),
        collate_fn=SFTTensorCollator(DatasetPadMode.NO_PADDING),
    )
    batches = iter(loader)
    most, deadline = 0, time.monotonic() + 600
    steady_since, last = time.monotonic(), -1
    while time.monotonic() < deadline and time.monotonic() - steady_since < 10:
        used = shared_bytes(worker.pid for worker in multiprocessing.active_children() if worker.pid)
        if used != last or not used:  # the first rows take a while
            steady_since, last = time.monotonic(), used
        most = max(most, used)
        time.sleep(0.1)
    assert sum(1 for _ in batches) * batch_size == num_rows
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    result: dict[str, Any] = {"frames": NUM_FRAMES, "width": WIDTH, "height": HEIGHT}
    most = most_bytes(arguments.rows, arguments.workers, batch_size=1, held=False)
    result["tensors"] = {"rows": arguments.rows, "megabytes_per_row": round(most / arguments.rows / 1e6)}
    rows = WORKERS * PREFETCH * BATCH
    most = most_bytes(rows, WORKERS, BATCH, held=True)
    result["images"] = {
        "rows": rows,
        "workers": WORKERS,
        "megabytes_per_row": round(most / rows / 1e6),
        "device_gigabytes": round(most / 1e9, 2),
        "node_gigabytes": round(most * DEVICES / 1e9, 1),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
