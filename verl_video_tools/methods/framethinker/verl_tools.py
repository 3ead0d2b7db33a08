"""The tools as verl's own tool loop offers them (docs/stock-tool-loop.md)."""

from __future__ import annotations

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker.get_frame_number import GetFrameNumber
from verl_video_tools.methods.framethinker.grammar import frame_number_sentence

NUMBER_AND_TIME = "frame {frame.index} ({frame.timestamp_seconds:.2f} s)"

CHOOSE_FRAMES = vt.ToolDescription(
    name=vt.ChooseFrames.name,
    description=(
        "Look closer at a part of the video: shows a fixed number of frames spread evenly between two frame numbers, "
        "both exclusive, then lists their numbers and times in the order shown."
    ),
    parameters={
        "start_frame": ("integer", "Frame number after which the segment starts, from 0."),
        "end_frame": ("integer", "Frame number before which the segment ends; at most the number of frames."),
    },
    frame_label=NUMBER_AND_TIME,
)

GET_FRAME_NUMBER = vt.ToolDescription(
    name=GetFrameNumber.name,
    description="Tells the number of the frame that is shown at a time of the video.",
    parameters={
        "time": ("string", "Minutes and seconds as MM:SS; hours count as minutes, so 1:05:20 is 65:20."),
    },
    result_text=lambda arguments, result: frame_number_sentence(arguments["time"], result["frame_number"]),
)

TOOL_DESCRIPTIONS = (
    CHOOSE_FRAMES,
    GET_FRAME_NUMBER,
)
