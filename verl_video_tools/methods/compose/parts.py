"""The tools and the plans of initial frames that a composition names, and how any part is built from its keys.

A part is a dataclass whose fields are its keys in the file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

from verl_video_tools.core.config import checked_fields
from verl_video_tools.core.resolve import resolve
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind.method import FrameMind, Rung
from verl_video_tools.methods.toolkit.frames import rate_frames
from verl_video_tools.video.resize import fit_pixels


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put the place in the file before the message of an error."""
    try:
        yield
    except (vt.UsageError, ValueError) as error:
        raise vt.UsageError(f"{where}: {error}") from error


def build(part: type[Any], values: Mapping[str, Any], where: str, defaults: Mapping[str, Any] | None = None) -> Any:
    """An instance of a part.

    Args:
        values: its keys in the file.
        where: place of these keys in the file.
        defaults: values of fields that the file may leave out.

    Raises:
        UsageError: an unknown key, a missing one, or a value of the wrong type or outside its range.
    """
    with located(where):
        given = {**(defaults or {}), **checked_fields(part, values)}
        for own in fields(part):
            if own.name not in given and own.default is MISSING and own.default_factory is MISSING:
                raise vt.UsageError(f"{own.name} is missing; it is a field of {part.__name__} without a default")
        return part(**given)


def named_part(
    values: Mapping[str, Any], registered: Mapping[str, str], base: type, kind: str, where: str, key: str = "name"
) -> Any:
    """A part that is one of several kinds: `key` says which one, the other keys are its fields.

    Raises:
        UsageError: there is no such part, or as `build`.
    """
    with located(f"{where}.{key}"):
        part = resolve(named(values, key), registered, kind)
        if not (isinstance(part, type) and issubclass(part, base)):
            raise vt.UsageError(f"must be a subclass of {base.__module__}.{base.__name__}, got {part!r:.80}")
    return build(part, without(values, key), where)


def named(values: Mapping[str, Any], key: str) -> str:
    """The text at a key."""
    name = values.get(key)
    if not isinstance(name, str):
        raise vt.UsageError("it is missing" if name is None else f"must be a text, got {name!r:.80}")
    return name


def without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The other keys."""
    return {key: value for key, value in values.items() if key not in keys}


# ---------------------------------------------------------------------------------------------------------------- tools


@dataclass(frozen=True)
class ToolEntry:
    """A tool that is known by name.

    Attributes:
        path: Python path `module:Class` of a dataclass with a `name`, a `description` and `plan`.
        defaults: values of its fields that a composition may leave out: its paper's.
        about: what the model reads about it; empty: its description, which may speak of labels that verl's loop writes.
    """

    path: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""


_METHODS = "verl_video_tools.methods"
_BOX = {"box_width": 640, "box_height": 360}

TOOLS: dict[str, ToolEntry] = {
    "crop_video": ToolEntry(
        f"{_METHODS}.longvt.crop_video:CropVideo",
        {"fps": 1.0, "max_frames": 128, "min_pixels": 784, "max_pixels": 50_176},
        "Shows a part of the video more closely.",
    ),
    "video_zoom": ToolEntry(
        f"{_METHODS}.videozoomer.video_zoom:VideoZoom",
        {"max_frames": 16, "max_pixels": 100_352},
        "Shows a segment of the video at a chosen rate; (end - start) * fps frames, as long as they are not too many.",
    ),
    "FrameAt": ToolEntry(
        f"{_METHODS}.framemind.tools:FrameAt",
        {"side_pixels": 448},
        "Shows the frame nearest to a time.",
    ),
    "VideoClip": ToolEntry(
        f"{_METHODS}.framemind.tools:VideoClip",
        {"min_frames": 8, "max_frames": 20, "side_pixels": 448},
        "Shows frames spread evenly over a part of the video.",
    ),
    "choose_frames": ToolEntry(
        f"{_METHODS}.toolkit.choose_frames:ChooseFrames",
        {"num_frames": 8, **_BOX},
        "Shows frames spread evenly between two frame numbers, both exclusive.",
    ),
    "get_frame_number": ToolEntry(f"{_METHODS}.framethinker.get_frame_number:GetFrameNumber"),
    "uniform_sample": ToolEntry(
        f"{_METHODS}.videobrain.tools:UniformSample",
        {"num_frames": 8, **_BOX},
        "Shows frames spread evenly over a range of frame numbers.",
    ),
    "clip_sample": ToolEntry(
        f"{_METHODS}.videobrain.tools:ClipSample",
        {
            "num_frames": 4,
            "num_candidates": (128, 256),
            "deadline_seconds": 300.0,
            **_BOX,
        },
        "Searches a range of frame numbers for pictures that look like a text; shows the best few in order of time.",
    ),
    "zoom": ToolEntry(f"{_METHODS}.toolkit.zoom:Zoom"),
    "grid": ToolEntry(f"{_METHODS}.toolkit.grid:Grid"),
    "subtitles_at": ToolEntry(f"{_METHODS}.toolkit.subtitle_tools:SubtitlesAt"),
    "search_subtitles": ToolEntry(f"{_METHODS}.toolkit.subtitle_tools:SubtitleSearch"),
    "ask_model": ToolEntry(f"{_METHODS}.toolkit.ask_model:AskModel"),
}
"""Tools by the name that calls carry. A new tool is one entry."""


@dataclass(frozen=True)
class OfferedTool:
    """A tool of a composition, and what the model reads about it."""

    tool: vt.Tool
    description: vt.ToolDescription
    about: str
    parameters: Mapping[str, tuple[str, str]]

    @property
    def name(self) -> str:
        return self.tool.name


def read_tool(values: Mapping[str, Any], where: str) -> OfferedTool:
    """A tool from its entry in the file: `name`, perhaps `about`, and its fields.

    Raises:
        UsageError: no such tool, or a wrong field or value.
    """
    with located(f"{where}.name"):
        name = named(values, "name")
        entry = TOOLS.get(name, ToolEntry(name))
        part = resolve(name, {known: entry.path for known, entry in TOOLS.items()}, "tool")
        if not is_dataclass(part):
            raise vt.UsageError(f"must name a dataclass, got {part!r:.80}")
    if "compat" in values:
        raise vt.UsageError(f"{where}.compat: only the papers' own methods have published behaviour; leave it out")
    tool = build(part, without(values, "name", "about"), where, entry.defaults)  # type: ignore[arg-type]  # a tool
    description = getattr(tool, "description", None)
    if not isinstance(description, vt.ToolDescription) or not callable(getattr(tool, "plan", None)):
        raise vt.UsageError(f"{where}.name: {name} must have a method `plan` and a `description`, a ToolDescription")
    with located(f"{where}.about"):
        about = named({"about": entry.about or description.description, **values}, "about")
    # A composition never tells the path of the video, and a tool takes the row's.
    return OfferedTool(tool, description, about, without(description.parameters, "video_path"))


# ------------------------------------------------------------------------------------------------------- initial frames

PLANS = {
    "none": f"{__name__}:NoFrames",
    "uniform": f"{__name__}:Uniform",
    "rate": f"{__name__}:Rate",
    "ladder": f"{__name__}:Ladder",
}
"""Python paths of plans of the initial frames by name. A new plan is one entry."""


@dataclass(frozen=True, kw_only=True)
class FramePlan(ABC):
    """What is shown with the question."""

    @abstractmethod
    def request(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """The frames of a video."""


@dataclass(frozen=True, kw_only=True)
class NoFrames(FramePlan):
    """No frames: the question comes alone, and tools show the video. For evaluation only."""

    def request(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        return vt.FrameRequest(width=1, height=1, indices=())


@dataclass(frozen=True, kw_only=True)
class SizedPlan(FramePlan):
    """Frames of a bounded area.

    Attributes:
        max_pixels: area in pixels that frames are shrunk to.
        min_pixels: area in pixels that frames are enlarged to, with sides that are multiples of the model's factor.
            None: frames are never enlarged.
    """

    max_pixels: int
    min_pixels: int | None = None

    def __post_init__(self) -> None:
        least = 1 if self.min_pixels is None else self.min_pixels
        vt.require(self, "min_pixels", least >= 1, "at least 1")
        vt.require(self, "max_pixels", self.max_pixels >= least, f"at least {least}")

    def size(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> tuple[int, int]:
        """Width and height in pixels."""
        if self.min_pixels is None:
            return fit_pixels(info.width, info.height, self.max_pixels, envelope)
        return vt.frame_size(info, self.min_pixels, self.max_pixels, envelope)


@dataclass(frozen=True, kw_only=True)
class Uniform(SizedPlan):
    """Frames spread evenly from the first of the video to the last.

    Attributes:
        num_frames: how many; all of a shorter video.
    """

    num_frames: int

    def __post_init__(self) -> None:
        super().__post_init__()
        vt.require(self, "num_frames", self.num_frames >= 1, "at least 1; the plan `none` shows none")

    def request(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        return vt.spread_frames(info, self.num_frames, self.size(info, envelope))


@dataclass(frozen=True, kw_only=True)
class Rate(SizedPlan):
    """Frames at a rate, from the first of the video on.

    Attributes:
        fps: frames per second.
        max_frames: where the rate gives more frames, this many are spread evenly from the first to the last.
    """

    fps: float
    max_frames: int

    def __post_init__(self) -> None:
        super().__post_init__()
        vt.require(self, "fps", self.fps > 0, "above 0")
        vt.require(self, "max_frames", self.max_frames >= 2, "at least 2")

    def request(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        return rate_frames(info, self.fps, self.max_frames, self.size(info, envelope))


@dataclass(frozen=True, kw_only=True)
class Ladder(FramePlan):
    """FrameMind's ladder: the rollouts of a group see from many small frames to few large ones.

    Attributes:
        low, high: first and last rung: number of frames, and side in pixels of the square that each is scaled to.
        validation_frames: frames in validation; null: as many as the first rung has.
    """

    low: Rung = (64, 224)
    high: Rung = (32, 448)
    validation_frames: int | None = None

    def __post_init__(self) -> None:
        self._method(None, 1)  # checks the fields

    def _method(self, rung: int | None, num_rungs: int) -> FrameMind:
        return FrameMind(
            low=self.low, high=self.high, initial_frames=self.validation_frames, rung=rung, num_rungs=num_rungs
        )

    def request(
        self, info: vt.VideoInfo, envelope: vt.PixelEnvelope, rung: int | None = None, num_rungs: int = 1
    ) -> vt.FrameRequest:
        """The frames of a video.

        Args:
            rung: the rollout's place on the ladder, from 1; None for validation.
            num_rungs: rungs of the ladder.
        """
        return self._method(rung, num_rungs).plan_initial_frames(info, vt.Sample("", "", "", "mc"), envelope)
