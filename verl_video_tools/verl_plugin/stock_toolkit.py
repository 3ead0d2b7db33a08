"""Tools that belong to no method (`methods.toolkit`), as verl `BaseTool`s for verl's own tool loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.core.config import checked_fields, require
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import Method
from verl_video_tools.core.types import FrameRecord
from verl_video_tools.methods.toolkit import Grid, Zoom
from verl_video_tools.methods.toolkit.calls import format_box
from verl_video_tools.verl_plugin.stock_tools import VideoTool


@dataclass(frozen=True, kw_only=True)
class _LoopFields:
    """What a method would say of its tools."""

    tool_deadline_seconds: float = Method.tool_deadline_seconds
    """Time that one call may take."""

    def __post_init__(self) -> None:
        require(self, "tool_deadline_seconds", self.tool_deadline_seconds > 0, "above 0")


class ToolkitTool(VideoTool):
    """A tool of the toolkit behind verl's tool interface.

    Its `config` takes the tool's own fields, and `tool_deadline_seconds`.

    Raises:
        UsageError: the tool has no such field, or the value does not fit it.
    """

    tool_class: ClassVar[type[Zoom] | type[Grid]]

    def _configure(self, fields: Mapping[str, Any]) -> None:
        own = {name: value for name, value in fields.items() if name != "tool_deadline_seconds"}
        loop = {name: value for name, value in fields.items() if name == "tool_deadline_seconds"}
        tool = self.tool_class(**checked_fields(self.tool_class, own))
        self._tool = tool.description
        self._planner = lambda info: tool
        self._deadline_seconds = _LoopFields(**checked_fields(_LoopFields, loop)).tool_deadline_seconds


class ZoomTool(ToolkitTool):
    """A part of one frame: a picture, then one line with its time and its box, as the model wrote it. verl's loop does
    not tell a tool what was shown, so the frame is named by its time."""

    tool_name = "zoom"
    tool_class = Zoom

    def _configure(self, fields: Mapping[str, Any]) -> None:
        if fields.get("frame_by", "time") != "time":
            raise UsageError(
                f"ZoomTool takes frame_by='time' alone, got {fields['frame_by']!r}: verl's loop tells no more"
            )
        super()._configure(fields)

    def render(self, arguments: Mapping[str, Any], result: Mapping[str, Any], frames: Sequence[FrameRecord]) -> str:
        return f"Shown above: {frames[0].timestamp_seconds:.2f} s, part {format_box(arguments['box'])}"


class GridTool(ToolkitTool):
    """Several frames in one picture: a picture, then one line with the times of its frames, row by row."""

    tool_name = "grid"
    tool_class = Grid

    def render(self, arguments: Mapping[str, Any], result: Mapping[str, Any], frames: Sequence[FrameRecord]) -> str:
        times = ", ".join(f"{tile.timestamp_seconds:.2f} s" for tile in frames[0].tiles)
        return f"Shown above, row by row: {times}"
