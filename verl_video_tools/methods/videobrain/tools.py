"""VideoBrain's two agents (paper 3.1): frames spread evenly over a range, and those of a range most like a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.video.resize import Aspect, size_in_box
from verl_video_tools.video.sampling import linspace_indices

LONG_RANGE_FRAMES = 20_000
"""Frames of a range from which it is long (code). The published inference code says above 20,000, and the paper (3.1)
videos above 20,000 frames."""


@dataclass(frozen=True, kw_only=True)
class UniformSample:
    """Shows `num_frames` frames from `start_frame` to the one before `end_frame`, both included, spread evenly.

    Attributes:
        num_frames: frames shown per call; a range of fewer frames is refused.
        box_width, box_height: pixels that a frame is shown in, see `video.resize.size_in_box`.
        aspect: what becomes of frames of another shape than the box's.
        compat: see `methods.toolkit.calls.read_frame_range`.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "uniform_sample"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows a fixed number of frames spread evenly over a range of frame "
            "numbers, then lists their numbers and times in the order shown."
        ),
        parameters={
            "start_frame": ("number", "First frame of the range, from 0."),
            "end_frame": ("number", "Frame number before which the range ends; at most the number of frames."),
        },
        frame_label=vt.NUMBER_AND_TIME,
    )

    num_frames: int
    box_width: int
    box_height: int
    aspect: Aspect = "fit"
    compat: vt.Compat = "strict"

    def __post_init__(self) -> None:
        for name in ("num_frames", "box_width", "box_height"):
            vt.require(self, name, getattr(self, name) >= 1, "at least 1")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"start_frame": number, "end_frame": number}``; others are ignored.

        The result repeats the range as it was carried out, ``{"start_frame": int, "end_frame": int}``, with its times
        (`ToolContext.range_seconds`).

        Raises:
            CallRejected: `malformed_call`, `out_of_range`, `reversed_segment` or `segment_too_short`.
            VideoError: the file cannot be asked for times.
        """
        info = context.info
        start, end = vt.read_frame_range(arguments, info.num_frames, self.compat)
        if end - start < self.num_frames:
            raise vt.CallRejected(
                vt.CallErrorCode.SEGMENT_TOO_SHORT,
                f"{start} to {end} are {end - start} frames; "
                f"end_frame must be at least start_frame + {self.num_frames}",
            )
        width, height = self._frame_size(info, context.envelope)
        indices = linspace_indices(start, end - 1, self.num_frames)
        return vt.ToolPlan(
            frames=vt.FrameRequest(width=width, height=height, indices=indices),
            result={"start_frame": start, "end_frame": end, **await context.range_seconds(start, end - 1)},
        )

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A call for the whole video."""
        return vt.spread_frames(info, self.num_frames, self._frame_size(info, envelope))

    def _frame_size(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> tuple[int, int]:
        return size_in_box(info.width, info.height, self.box_width, self.box_height, envelope, self.aspect)


@dataclass(frozen=True, kw_only=True)
class ClipSample:
    """Shows the `num_frames` candidates most like `prompt`, in order of time (algorithm 1).

    Candidates are spread evenly over the range, both its first and its last frame among them. Their scores are
    not reported.

    Attributes:
        num_frames: frames shown per call; a range of fewer frames shows them all.
        num_candidates: candidates of a range below `LONG_RANGE_FRAMES` frames, and of one from there on.
        box_width, box_height: pixels that a frame is shown in, see `video.resize.size_in_box`.
        deadline_seconds: time for the search.
        aspect: what becomes of frames of another shape than the box's.
        compat: see `methods.toolkit.calls.read_frame_range`; `reference` also takes a prompt that is not text.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "clip_sample"
    searches: ClassVar[bool] = True
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Search a part of the video for pictures that look like a text: shows the best few frames in order of "
            "time, then lists their numbers and times in the order shown."
        ),
        parameters={
            "start_frame": ("number", "First frame of the range that is searched, from 0."),
            "end_frame": ("number", "Frame number before which the range ends; at most the number of frames."),
            "prompt": ("string", "What can be seen in the frames looked for, in a few words."),
        },
        frame_label=vt.NUMBER_AND_TIME,
    )

    num_frames: int
    num_candidates: tuple[int, int]
    box_width: int
    box_height: int
    deadline_seconds: float
    aspect: Aspect = "fit"
    compat: vt.Compat = "strict"

    def __post_init__(self) -> None:
        for name in ("num_frames", "box_width", "box_height"):
            vt.require(self, name, getattr(self, name) >= 1, "at least 1")
        least = self.num_frames
        vt.require(self, "num_candidates", min(self.num_candidates) >= least, f"at least num_frames, {least}, each")
        vt.require(self, "deadline_seconds", self.deadline_seconds > 0.0, "above 0")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"start_frame": number, "end_frame": number, "prompt": str}``; others are ignored.

        The result repeats the call as it was carried out, ``{"start_frame": int, "end_frame": int, "prompt": str}``,
        with the times of the range (`ToolContext.range_seconds`).

        Raises:
            CallRejected: `malformed_call`, `out_of_range` or `reversed_segment`.
            RetrievalError: the search failed, or the run has no retriever.
            VideoError: the candidates cannot be decoded, or the file cannot be asked for times.
        """
        info = context.info
        start, end = vt.read_frame_range(arguments, info.num_frames, self.compat)
        prompt = self._prompt(arguments)
        if context.retriever is None:
            raise vt.RetrievalError("no retriever is set up: clip_sample finds frames by text and needs one")
        best = await context.retriever.best_frames(
            context.sample.video_path,
            self.candidates(start, end),
            prompt,
            self.num_frames,
            self.deadline_seconds,
        )
        width, height = self._frame_size(info, context.envelope)
        return vt.ToolPlan(
            frames=vt.FrameRequest(width=width, height=height, indices=tuple(sorted(best))),
            result={
                **{"start_frame": start, "end_frame": end, "prompt": prompt},
                **await context.range_seconds(start, end - 1),
            },
        )

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A call for the whole video."""
        return vt.spread_frames(info, self.num_frames, self._frame_size(info, envelope))

    def _frame_size(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> tuple[int, int]:
        return size_in_box(info.width, info.height, self.box_width, self.box_height, envelope, self.aspect)

    def candidates(self, start: int, end: int) -> tuple[int, ...]:
        """Frames of the range [start, end) that are compared with the text."""
        count = self.num_candidates[end - start >= LONG_RANGE_FRAMES]
        return linspace_indices(start, end - 1, min(count, end - start))

    def _prompt(self, arguments: Mapping[str, Any]) -> str:
        value = arguments.get("prompt")
        is_taken = isinstance(value, str) or (self.compat == "reference" and value is not None)
        prompt = str(value).strip() if is_taken else ""
        if not prompt:
            raise vt.CallRejected(
                vt.CallErrorCode.MALFORMED_CALL, f"prompt must say in a few words what to look for, got {value!r:.80}"
            )
        return prompt
