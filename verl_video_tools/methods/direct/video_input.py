"""Frames of a model's own video input, as Qwen publishes it for its models.

Rate, bounds and rounding are those of `qwen_vl_utils` (Apache-2.0); the code is ours.
"""

from __future__ import annotations

import numpy as np

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.frame_size import PATCH_FACTOR, frame_size

FRAMES_PER_SECOND = 2.0
"""Of a video input; both Qwen2.5-VL and Qwen3-VL were evaluated with it."""
FRAMES_PER_PATCH = 2
"""Frames that one token sees."""
MIN_FRAMES = 4
MIN_TOKENS_PER_PATCH, MAX_TOKENS_PER_PATCH = 128, 768
"""Tokens of a pair of frames. The bound of the whole video comes before the lower one."""


def sampled_video(info: vt.VideoInfo, max_frames: int, max_tokens: int, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
    """An even number of frames spread over the whole video, from the first to the last; all of a shorter one.

    Args:
        max_frames: where two per second make more; they are at least 4.
        max_tokens: of all frames together.
    """
    wanted = min(max(info.duration_seconds * FRAMES_PER_SECOND, MIN_FRAMES), max_frames, info.num_frames)
    num_frames = max(1, int(wanted) // FRAMES_PER_PATCH * FRAMES_PER_PATCH)
    factor = PATCH_FACTOR if envelope.factor == 1 else envelope.factor
    tokens_per_patch = min(MAX_TOKENS_PER_PATCH, max_tokens * FRAMES_PER_PATCH // max(num_frames, FRAMES_PER_PATCH))
    max_pixels = max(1, tokens_per_patch) * factor**2
    width, height = frame_size(info, MIN_TOKENS_PER_PATCH * factor**2, max_pixels, envelope)
    indices = np.linspace(0, info.num_frames - 1, num_frames).round().astype(int)
    return vt.FrameRequest(width=width, height=height, indices=tuple(indices.tolist()))
