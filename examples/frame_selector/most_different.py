"""A selector of the frames shown with the question: those that differ most from one another.

    vvt replay --method videozoomer --set initial_frames_selector=most_different:most_different ...
    bash recipes/videozoomer_grpo.sh video_tools.videozoomer.initial_frames_selector=most_different:most_different

A selector replaces the method's choice of moments, not their size, and never shows more. The module must be importable
on every node (PYTHONPATH, or an installed package). `verl_video_tools.methods.toolkit.frames` has one that searches
by text.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verl_video_tools.methods.toolkit import FrameRequest, ToolContext
from verl_video_tools.video import decode_frames, linspace_indices, open_video

NUM_CANDIDATES = 64
"""Frames spread over the video that are compared."""
WIDTH, HEIGHT = 32, 18
"""Size in pixels at which they are: small pictures differ by what is in them, not by noise."""


async def most_different(look: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
    """As many frames as `look` has, in order of time. The first frame, then always the candidate that is farthest, in
    colour, from all those already chosen.

    Raises:
        VideoError: the candidates cannot be decoded.
    """
    candidates = linspace_indices(0, context.info.num_frames - 1, max(NUM_CANDIDATES, len(look)))
    video = await open_video(context.sample.video_path, deadline_seconds)
    batch = await decode_frames(video, FrameRequest(width=WIDTH, height=HEIGHT, indices=candidates), deadline_seconds)
    pictures_TD = batch.frames_THWC.reshape(len(batch), -1).astype(np.float32)

    chosen = [0]
    distances_T = np.full(len(candidates), np.inf, dtype=np.float32)
    while len(chosen) < min(len(look), len(candidates)):
        distances_T = np.minimum(distances_T, np.linalg.norm(pictures_TD - pictures_TD[chosen[-1]], axis=1))
        distances_T[chosen] = -1.0  # also where all the others look the same
        chosen.append(int(distances_T.argmax()))
    return replace(look, seconds=None, indices=tuple(candidates[position] for position in sorted(chosen)))
