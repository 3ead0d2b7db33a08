"""Providers of frames and what they are asked for."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

from tests.videos.files import read_number
from verl_video_tools.core.types import FrameBatch, FrameRequest
from verl_video_tools.video.file_locks import StripedLocks
from verl_video_tools.video.frame_store import FrameStore
from verl_video_tools.video.provider import FrameProvider
from verl_video_tools.video.source import Deadline

FRAME_BYTES = 20480
"""What a frame of 96 x 64 takes in a cache: 18,432 bytes of pixels and a header, in whole pages."""

SPAWN = multiprocessing.get_context("spawn")


def provider_of(folder: Path, capacity_bytes: int = 64 << 20, **options: Any) -> FrameProvider:
    return FrameProvider([FrameStore(folder, capacity_bytes)], StripedLocks(folder / "locks"), **options)


def within(seconds: float) -> Deadline:
    return Deadline(seconds, "provide")


def by_index(*indices: int, width: int = 96, height: int = 64) -> FrameRequest:
    return FrameRequest(width, height, indices=indices)


def by_time(*seconds: float) -> FrameRequest:
    return FrameRequest(96, 64, seconds=seconds)


def numbers(batch: FrameBatch) -> list[int]:
    return [read_number(frame) for frame in batch.frames_THWC]
