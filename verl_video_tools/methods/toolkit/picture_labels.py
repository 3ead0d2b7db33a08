"""What a picture shows, in words: the time of a frame, the part of it, the times of all frames of a grid."""

from __future__ import annotations

from verl_video_tools.core.types import BoxUnit, FrameRecord, VideoInfo
from verl_video_tools.methods.toolkit.box_argument import format_box


def picture_label(record: FrameRecord, info: VideoInfo, unit: BoxUnit = "pixels") -> str:
    """``12.00 s``; ``12.00 s, part [0.25, 0, 0.5, 1]``; or ``row by row: 1.00 s, 2.00 s, 3.00 s, 4.00 s``.

    Args:
        unit: of the box, the one that the model is asked to write boxes in.
    """
    times = [f"{tile.timestamp_seconds:.2f} s" for tile in record.tiles] or [f"{record.timestamp_seconds:.2f} s"]
    label = f"row by row: {', '.join(times)}" if record.tiles else times[0]
    if record.region is not None:
        label += f", part {format_box(record.region.in_unit(unit, info.width, info.height))}"
    return label
