"""What vLLM is told of frames that it gets as one video.

It decodes a `data:video/jpeg` URL as frames that were sampled already, and takes the facts of the file that they come
from with the request (`media_io_kwargs`, vLLM 0.24). They decide which times the model is told: vLLM hands them to the
processor of Qwen3-VL, and not to that of Qwen2.5-VL, which then takes the frames for 24 of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verl_video_tools.core.types import FrameRecord, VideoInfo


def video_fields(info: VideoInfo, frames: Sequence[FrameRecord]) -> dict[str, Any]:
    """Fields of a request whose first message with images shows these frames of a video as one.

    Bounds of the processor are set so wide that it leaves the frames at their size: for Qwen2.5-VL they bound the area
    of a frame, for Qwen3-VL that of all frames together.
    """
    media = {
        "num_frames": -1,  # all that are sent
        "fps": info.average_fps,
        "frames_indices": [frame.index for frame in frames],
        "total_num_frames": info.num_frames,
        "duration": info.duration_seconds,
        "do_sample_frames": False,
    }
    area = frames[0].width * frames[0].height
    size = {"shortest_edge": 1, "longest_edge": area * (len(frames) + 1)}  # an odd number is filled up by one
    return {"media_io_kwargs": {"video": media}, "mm_processor_kwargs": {"size": size}}
