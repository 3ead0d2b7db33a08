"""The tools as verl's own tool loop offers them (docs/stock-tool-loop.md)."""

from __future__ import annotations

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videobrain.clip_sample import ClipSample
from verl_video_tools.methods.videobrain.uniform_sample import UniformSample

NUMBER_AND_TIME = "frame {frame.index} ({frame.timestamp_seconds:.2f} s)"

UNIFORM_SAMPLE = vt.ToolDescription(
    name=UniformSample.name,
    description=(
        "Look closer at a part of the video: shows a fixed number of frames spread evenly over a range of frame "
        "numbers, then lists their numbers and times in the order shown."
    ),
    parameters={
        "start_frame": ("number", "First frame of the range, from 0."),
        "end_frame": ("number", "Frame number before which the range ends; at most the number of frames."),
    },
    frame_label=NUMBER_AND_TIME,
)

CLIP_SAMPLE = vt.ToolDescription(
    name=ClipSample.name,
    description=(
        "Search a part of the video for pictures that look like a text: shows the best few frames in order of time, "
        "then lists their numbers and times in the order shown."
    ),
    parameters={
        "start_frame": ("number", "First frame of the range that is searched, from 0."),
        "end_frame": ("number", "Frame number before which the range ends; at most the number of frames."),
        "prompt": ("string", "What can be seen in the frames looked for, in a few words."),
    },
    frame_label=NUMBER_AND_TIME,
)

TOOL_DESCRIPTIONS = (
    UNIFORM_SAMPLE,
    CLIP_SAMPLE,
)
