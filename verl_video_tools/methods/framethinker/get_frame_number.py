"""FrameThinker's clock: the number of the frame that is shown at a time (paper 3.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker.grammar import frame_number_sentence

_TIME = re.compile(r"(\d{1,3}):(\d{2})")


@dataclass(frozen=True, kw_only=True)
class GetFrameNumber:
    """Answers with the number of the frame shown at MM:SS; shows no image.

    Attributes:
        compat: `reference` multiplies seconds by the average frame rate and truncates, without any check of range, as
            the published code does; `strict` looks the frame up, which is also right where the rate varies.
    """

    name: ClassVar[str] = "get_frame_number"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description="Tells the number of the frame that is shown at a time of the video.",
        parameters={
            "time": ("string", "Minutes and seconds as MM:SS; hours count as minutes, so 1:05:20 is 65:20."),
        },
        result_text=lambda arguments, result: frame_number_sentence(arguments["time"], result["frame_number"]),
    )

    compat: vt.Compat = "strict"

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Result ``{"frame_number": int}`` for ``{"time": "MM:SS"}``; hours are folded into minutes.

        Raises:
            CallRejected: `malformed_call`, or `out_of_range` for a time after the end of the video.
            VideoError: the frame could not be looked up.
        """
        time = arguments.get("time")
        if not isinstance(time, str):
            raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"time must be text like '12:05', got {time!r:.80}")
        if self.compat == "reference":
            frame_number = int(_seconds_reference(time) * context.info.average_fps)
        else:
            frame_number = await context.index_at(_seconds(time, context.info.duration_seconds))
        return vt.ToolPlan(result={"frame_number": frame_number})


def _seconds(time: str, duration_seconds: float) -> float:
    match = _TIME.fullmatch(time)
    if match is None or int(match[2]) >= 60:
        raise vt.CallRejected(
            vt.CallErrorCode.MALFORMED_CALL,
            f"time {time!r:.80} is not MM:SS with up to three digits of minutes and two of seconds below 60",
        )
    seconds = 60.0 * int(match[1]) + int(match[2])
    if seconds > duration_seconds:
        raise vt.CallRejected(
            vt.CallErrorCode.OUT_OF_RANGE, f"time {time} is after the end of the video ({duration_seconds:.2f} s)"
        )
    return seconds


def _seconds_reference(time: str) -> int:
    try:
        minutes, seconds = (int(part) for part in time[:40].split(":"))  # the cut keeps the product a finite float
    except ValueError as error:
        raise vt.CallRejected(
            vt.CallErrorCode.MALFORMED_CALL, f"time {time[:40]!r} is not two numbers MM:SS"
        ) from error
    return 60 * minutes + seconds
