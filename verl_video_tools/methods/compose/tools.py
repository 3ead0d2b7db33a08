"""The tools that a composition may name. A new tool is one entry of `TOOLS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from verl_video_tools.core.resolve import resolve
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose import dearest
from verl_video_tools.methods.compose.section import Section

_METHODS = "verl_video_tools.methods"

Dearest = Callable[[Any, vt.VideoInfo, vt.PixelEnvelope], vt.FrameRequest]


@dataclass(frozen=True)
class ToolEntry:
    """A tool that is known by name.

    Attributes:
        path: Python path `module:Class` of a dataclass with a `name`, a `description` and `plan`.
        defaults: values of its fields that a composition may leave out: its paper's.
        about: what the model reads of it; empty: the words of its description.
        hidden: parameters that the model is not told of.
        dearest: the most expensive call of a tool on a video (`Method.max_cost_call`), where the tool has no method
            `dearest` of its own; None where it shows nothing, or does not say.
        needs: what it asks: a `retriever` that finds frames by text, a `model`, or the row's `subtitles`, which the
            prompt leaves out then. A tool of another package says so by an attribute `searches` or `asks_model`.
    """

    path: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""
    hidden: tuple[str, ...] = ()
    dearest: Dearest | None = None
    needs: Literal["retriever", "model", "subtitles"] | None = None


_BOX = {"box_width": 640, "box_height": 360}

TOOLS: dict[str, ToolEntry] = {
    "crop_video": ToolEntry(
        f"{_METHODS}.longvt.crop_video:CropVideo",
        {"fps": 1.0, "max_frames": 128, "min_pixels": 784, "max_pixels": 50_176},
        "Shows a part of the video more closely.",
        ("video_path",),
        dearest.crop,
    ),
    "video_zoom": ToolEntry(
        f"{_METHODS}.videozoomer.video_zoom:VideoZoom",
        {"max_frames": 16, "max_pixels": 100_352},
        "Shows a segment of the video at a chosen rate; (end - start) * fps frames, as long as they are not too many.",
        dearest=dearest.zoom,
    ),
    "FrameAt": ToolEntry(
        f"{_METHODS}.framemind.frame_at:FrameAt",
        {"side_pixels": 448},
        "Shows the frame nearest to a time.",
        dearest=dearest.frame,
    ),
    "VideoClip": ToolEntry(
        f"{_METHODS}.framemind.video_clip:VideoClip",
        {"min_frames": 8, "max_frames": 20, "frames_per_second": 2.0, "side_pixels": 448},
        "Shows frames spread evenly over a part of the video.",
        dearest=dearest.clip,
    ),
    "choose_frames": ToolEntry(
        f"{_METHODS}.toolkit.choose_frames:ChooseFrames",
        {"num_frames": 8, **_BOX},
        "Shows frames spread evenly between two frame numbers, both exclusive.",
        dearest=dearest.choice,
    ),
    "get_frame_number": ToolEntry(f"{_METHODS}.framethinker.get_frame_number:GetFrameNumber"),
    "uniform_sample": ToolEntry(
        f"{_METHODS}.videobrain.uniform_sample:UniformSample",
        {"num_frames": 8, **_BOX},
        "Shows frames spread evenly over a range of frame numbers.",
        dearest=dearest.sample,
    ),
    "clip_sample": ToolEntry(
        f"{_METHODS}.videobrain.clip_sample:ClipSample",
        {
            "num_frames": 4,
            "num_candidates": (128, 256),
            "dense_from_frames": 20_000,
            "deadline_seconds": 300.0,
            **_BOX,
        },
        "Searches a range of frame numbers for pictures that look like a text; shows the best few in order of time.",
        dearest=dearest.sample,
        needs="retriever",
    ),
    "zoom": ToolEntry(f"{_METHODS}.toolkit.zoom:Zoom"),
    "grid": ToolEntry(f"{_METHODS}.toolkit.grid:Grid"),
    "subtitles_at": ToolEntry(f"{_METHODS}.toolkit.subtitle_tools:SubtitlesAt", needs="subtitles"),
    "search_subtitles": ToolEntry(f"{_METHODS}.toolkit.subtitle_tools:SubtitleSearch", needs="subtitles"),
    "ask_model": ToolEntry(f"{_METHODS}.toolkit.ask_model:AskModel", needs="model"),
}
"""Tools by the name that calls carry."""


@dataclass(frozen=True)
class OfferedTool:
    """A tool of a composition, and what the model is told of it."""

    tool: vt.Tool
    description: vt.ToolDescription
    about: str
    parameters: Mapping[str, tuple[str, str]]
    dearest: Dearest | None = None

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def searches(self) -> bool:
        return self._needs("retriever") or bool(getattr(self.tool, "searches", False))

    @property
    def asks_model(self) -> bool:
        return self._needs("model") or bool(getattr(self.tool, "asks_model", False))

    @property
    def tells_subtitles(self) -> bool:
        return self._needs("subtitles")

    def _needs(self, what: str) -> bool:
        """By its name, so that one of the package counts as itself also where a composition gives its Python path."""
        return self.name in TOOLS and TOOLS[self.name].needs == what


def read_tool(section: Section) -> OfferedTool:
    """A tool from its entry in the file: `name`, perhaps `about`, and its fields.

    Raises:
        UsageError: no such tool, or a wrong field or value.
    """
    spec = section.text("name")
    entry = TOOLS.get(spec, ToolEntry(spec))
    try:
        found = resolve(spec, {name: known.path for name, known in TOOLS.items()}, "tool")
    except vt.UsageError as error:
        raise section.fault("name", str(error)) from error
    if "compat" in section.values:
        raise section.fault("compat", "published behaviour is the papers' own methods' alone; leave it out")
    tool = section.without(("name", "about")).build(found, entry.defaults)
    description = getattr(tool, "description", None)
    if not isinstance(description, vt.ToolDescription) or not callable(getattr(tool, "plan", None)):
        raise section.fault("name", f"{spec} must have a method `plan` and a `description`, a ToolDescription")
    about = section.text("about", entry.about or description.description)
    parameters = {name: told for name, told in description.parameters.items() if name not in entry.hidden}
    return OfferedTool(tool, description, about, parameters, entry.dearest or getattr(found, "dearest", None))
