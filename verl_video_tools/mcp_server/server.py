"""The tools of a server, on the package `mcp`: frames of the videos of one folder, as images with their times."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ContentBlock, ImageContent, TextContent, ToolAnnotations
from pydantic import Field

from verl_video_tools import __version__
from verl_video_tools.core.errors import CallErrorCode, CallRejected, RetrievalError, VideoError
from verl_video_tools.core.image_files import encode_image
from verl_video_tools.core.types import (
    FrameBatch,
    FrameRecord,
    FrameRequest,
    PixelEnvelope,
    Retriever,
    Sample,
    Tool,
    ToolContext,
    VideoInfo,
)
from verl_video_tools.mcp_server.folder import VideoFolder
from verl_video_tools.mcp_server.limits import CallLimits
from verl_video_tools.mcp_server.subtitles import SubtitleFolder
from verl_video_tools.methods.toolkit.box_argument import region_argument
from verl_video_tools.methods.toolkit.selectors import NUM_CANDIDATES
from verl_video_tools.methods.toolkit.subtitle_tools import SubtitlesAt, SubtitleSearch
from verl_video_tools.video import (
    Video,
    decode_frames,
    index_at,
    linspace_indices,
    open_video,
    run_decode,
    run_with_reader,
    uniform_seconds,
)

MAX_LISTED = 1000
"""Names that one call lists at most."""
FRAME_PIXELS = 448 * 448
"""Area of a frame where a call does not name one."""
GRID_FRAME_PIXELS = 224 * 224
"""The same of a frame of a grid."""

INSTRUCTIONS = (
    "Frames of the videos of one folder. Times are seconds from the first frame; frame numbers count from 0. "
    "Start with list_videos and probe_video, skim with show_frames_between, then look closer at what matters. "
    "zoom shows small text and things as large as the video has them."
)

VideoName = Annotated[str, Field(description="Name of a video, as list_videos tells it.")]
NumFrames = Annotated[int, Field(description="How many frames to show.")]
FramePixels = Annotated[
    int, Field(description="Area of one shown frame in pixels at most; the shape is kept, and nothing is enlarged.")
]
Start = Annotated[float, Field(description="Where the part starts, in seconds.")]
End = Annotated[float | None, Field(description="Where the part ends, in seconds; left out: the end of the video.")]


@dataclass(frozen=True)
class VideoList:
    """What `list_videos` returns."""

    videos: list[str]
    num_videos: int
    """How many there are; more than are listed where it is above `MAX_LISTED`."""


@dataclass(frozen=True)
class VideoFacts:
    """What `probe_video` returns: of `VideoInfo` what a client can use."""

    duration_seconds: float
    num_frames: int
    average_fps: float
    width: int
    height: int


@dataclass(frozen=True)
class FrameNumber:
    """What `frame_number_at` returns."""

    frame_number: int


class VideoTools:
    """The tools, for one event loop. Each public method is one; its docstring is what clients read about it.

    Args:
        retriever: for `search_frames`, which fails without one.
        jpeg_quality: of shown frames, 1 to 95; None sends PNG.
        subtitles: for the tools that tell them; without any each says that there are none.
    """

    def __init__(
        self,
        folder: VideoFolder,
        limits: CallLimits,
        retriever: Retriever | None = None,
        jpeg_quality: int | None = None,
        subtitles: SubtitleFolder | None = None,
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._retriever = retriever
        self._jpeg_quality = jpeg_quality
        self._subtitles = subtitles

    def list_videos(
        self, contains: Annotated[str, Field(description="Only names that contain this text, in any case.")] = ""
    ) -> VideoList:
        """List the names of the videos. Of more than 1000 only the first are listed: ask for a part of the name."""
        names = self._folder.names(contains)
        return VideoList(names[:MAX_LISTED], len(names))

    async def probe_video(self, video: VideoName) -> VideoFacts:
        """Tell duration, number of frames, average frame rate, width and height of a video, read from the file."""
        async with self._opened(video) as opened:
            info = opened.info
            return VideoFacts(info.duration_seconds, info.num_frames, info.average_fps, info.width, info.height)

    async def show_frames_at(
        self,
        video: VideoName,
        seconds: Annotated[list[float], Field(description="Times, 0 to the duration of the video.")],
        frame_pixels: FramePixels = FRAME_PIXELS,
    ) -> list[ContentBlock]:
        """Show the frames that are on screen at the given times, in the given order, each after its number and time."""
        self._checked_count(len(seconds))
        async with self._opened(video) as opened:
            indices = await self._indices_at(opened, tuple(seconds))
            return await self._shown(opened, indices, frame_pixels)

    async def show_frames_between(
        self,
        video: VideoName,
        start_seconds: Start = 0.0,
        end_seconds: End = None,
        num_frames: NumFrames = 8,
        frame_pixels: FramePixels = FRAME_PIXELS,
    ) -> list[ContentBlock]:
        """Show frames spread evenly over a part of a video, both ends included; all of a part that has fewer."""
        self._checked_count(num_frames)
        async with self._opened(video) as opened:
            part = _part(opened.info, start_seconds, end_seconds)
            indices = await self._indices_at(opened, uniform_seconds(*part, num_frames))
            return await self._shown(opened, tuple(dict.fromkeys(indices)), frame_pixels)

    async def zoom(
        self,
        video: VideoName,
        seconds: Annotated[float, Field(description="Time of the frame, 0 to the duration of the video.")],
        box: Annotated[list[float], Field(description="[left, top, right, bottom], the upper left corner is [0, 0].")],
        unit: Annotated[
            Literal["normalised", "pixels"],
            Field(description="Of the box: shares of the frame's width and height (0 to 1), or its pixels."),
        ] = "normalised",
        frame_pixels: FramePixels = FRAME_PIXELS,
    ) -> list[ContentBlock]:
        """Show a part of the frame that is on screen at a time, cut out of the video at full resolution."""
        async with self._opened(video) as opened:
            region, pixels = region_argument({"box": box}, "box", _size(opened), unit)
            width, height = self._limits.frame_size((pixels.width, pixels.height), 1, frame_pixels)
            indices = await self._indices_at(opened, (seconds,))
            return await self._pictures(opened, FrameRequest(width, height, indices=indices, region=region))

    async def show_grid(
        self,
        video: VideoName,
        start_seconds: Start = 0.0,
        end_seconds: End = None,
        num_frames: NumFrames = 9,
        columns: Annotated[int, Field(description="Frames of a row, at least 1.", ge=1)] = 3,
        frame_pixels: FramePixels = GRID_FRAME_PIXELS,
    ) -> list[ContentBlock]:
        """Show frames spread evenly over a part of a video, row by row in one picture: many frames at a low price."""
        self._checked_count(num_frames)
        async with self._opened(video) as opened:
            part = _part(opened.info, start_seconds, end_seconds)
            found = await self._indices_at(opened, uniform_seconds(*part, num_frames))
            indices = tuple(dict.fromkeys(found))
            columns = min(columns, len(indices))
            rows = math.ceil(len(indices) / columns)
            width, height = self._limits.frame_size(_size(opened), columns * rows, frame_pixels)
            request = FrameRequest(width * columns, height * rows, indices=indices, grid=(columns, rows))
            return await self._pictures(opened, request)

    async def frame_number_at(
        self, video: VideoName, seconds: Annotated[float, Field(description="A time, 0 to the duration.")]
    ) -> FrameNumber:
        """Tell the number of the frame that is on screen at a time."""
        async with self._opened(video) as opened:
            (index,) = await self._indices_at(opened, (seconds,))
            return FrameNumber(index)

    async def search_frames(
        self,
        video: VideoName,
        text: Annotated[str, Field(description="What can be seen in the frames looked for, in a few words.")],
        num_frames: NumFrames = 4,
        start_seconds: Start = 0.0,
        end_seconds: End = None,
        frame_pixels: FramePixels = FRAME_PIXELS,
    ) -> list[ContentBlock]:
        """Show those of some hundred frames of a part that look most like a text, in order of time.

        There are always as many as asked for, whether or not any fits.
        """
        self._checked_count(num_frames)
        async with self._opened(video) as opened:
            if self._retriever is None:
                raise RetrievalError("this server has no encoder to search with; start it with --retrieval model=DIR")
            part = _part(opened.info, start_seconds, end_seconds)
            first, last = await self._indices_at(opened, part)
            candidates = linspace_indices(first, last, max(NUM_CANDIDATES, num_frames))
            best = await self._retriever.best_frames(
                str(opened.path), candidates, text, num_frames, self._limits.deadline_seconds
            )
            return await self._shown(opened, tuple(sorted(best)), frame_pixels)

    async def subtitles_between(self, video: VideoName, start_seconds: Start = 0.0, end_seconds: End = None) -> str:
        """Tell the subtitles that are on screen in a part of a video, each with its times in seconds."""
        async with self._opened(video) as opened:
            start, end = _part(opened.info, start_seconds, end_seconds)
            return await self._said(video, opened, SubtitlesAt(), {"start_time": start, "end_time": end})

    async def search_subtitles(
        self, video: VideoName, words: Annotated[str, Field(description="One or more words that are said there.")]
    ) -> str:
        """Find the subtitles of a video that hold given words, each with its times in seconds, in order of time."""
        async with self._opened(video) as opened:
            return await self._said(video, opened, SubtitleSearch(), {"words": words})

    # ------------------------------------------------------------------------------------------------------- internals

    async def _said(self, name: str, video: Video, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """What a tool of the methods tells."""
        told = () if self._subtitles is None else await asyncio.to_thread(self._subtitles.of_video, name)
        sample = Sample("", "", str(video.path), "open", subtitles=told)
        find = partial(index_at, video, self._limits.deadline_seconds)
        plan = await tool.plan(arguments, ToolContext(video.info, sample, PixelEnvelope(), find))
        return plan.text or ""

    def _checked_count(self, num_frames: int) -> None:
        try:
            self._limits.check_count(num_frames)
        except CallRejected as error:
            raise ToolError(str(error)) from error

    @asynccontextmanager
    async def _opened(self, name: str) -> AsyncIterator[Video]:
        """The video; what fails on it is reported to the client, without the place of the folder."""
        path: Path | None = None
        try:
            # Not on the loop: where the file system hangs, it would keep all other clients waiting.
            path = await run_decode(self._folder.path_of, name, deadline_seconds=self._limits.deadline_seconds)
            yield await open_video(path, deadline_seconds=self._limits.deadline_seconds)
        except (CallRejected, RetrievalError, VideoError) as error:
            raise ToolError(str(error).replace(str(path), name)) from error

    async def _indices_at(self, video: Video, seconds: tuple[float, ...]) -> tuple[int, ...]:
        request = FrameRequest(width=video.info.width, height=video.info.height, seconds=seconds)

        return tuple(
            await run_with_reader(
                video,
                lambda reader, deadline: reader.indices_of(request, deadline),
                self._limits.deadline_seconds,
                "find the frames",
            )
        )

    async def _shown(self, video: Video, indices: tuple[int, ...], frame_pixels: int) -> list[ContentBlock]:
        width, height = self._limits.frame_size(_size(video), len(indices), frame_pixels)
        return await self._pictures(video, FrameRequest(width=width, height=height, indices=indices))

    async def _pictures(self, video: Video, request: FrameRequest) -> list[ContentBlock]:
        batch = await decode_frames(video, request, deadline_seconds=self._limits.deadline_seconds)
        return await asyncio.to_thread(self._content, video, batch)  # a large PNG takes a second

    def _content(self, video: Video, batch: FrameBatch) -> list[ContentBlock]:
        """The pictures of a batch, each after what it shows."""
        content: list[ContentBlock] = []
        for record, is_corrupt, pixels_HWC in zip(batch.records(), batch.corrupt, batch.frames_THWC, strict=True):
            label = _label(record, video, is_corrupt)
            kind, data = encode_image(pixels_HWC, self._jpeg_quality)
            picture = ImageContent(data=base64.b64encode(data).decode(), mime_type=f"image/{kind}")
            content += [TextContent(text=label), picture]
        return content


def make_server(tools: VideoTools, searches: bool, tells_subtitles: bool = False) -> MCPServer[Any]:
    """A server with these tools; run it with `run("stdio")` or `run("streamable-http", host=..., port=...)`.

    Args:
        searches: offer `search_frames`.
        tells_subtitles: offer `subtitles_between` and `search_subtitles`.
    """
    server: MCPServer[Any] = MCPServer(
        "verl_video_tools", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )
    offered: list[Callable[..., Any]] = [
        tools.list_videos,
        tools.probe_video,
        tools.show_frames_at,
        tools.show_frames_between,
        tools.zoom,
        tools.show_grid,
        tools.frame_number_at,
        *([tools.search_frames] if searches else []),
    ]
    if tells_subtitles:
        offered += [tools.subtitles_between, tools.search_subtitles]
    for tool in offered:
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    return server


def _size(video: Video) -> tuple[int, int]:
    return video.info.width, video.info.height


def _label(record: FrameRecord, video: Video, is_corrupt: bool) -> str:
    """What a picture shows, as its reader is told."""
    shown = record.single_frames
    frames = ", ".join(f"frame {each.index} at {each.timestamp_seconds:.3f} s" for each in shown)
    if record.tiles:
        damaged = ", some of them the nearest that is not damaged" if is_corrupt else ""
        return f"row by row: {frames}{damaged}:"
    damaged = ", the nearest that is not damaged" if is_corrupt else ""
    part = "" if record.region is None else f", pixels {list(record.region)} of {video.info.width}x{video.info.height}"
    return f"{frames}{part}{damaged}:"


def _part(info: VideoInfo, start_seconds: float, end_seconds: float | None) -> tuple[float, float]:
    """Start and end of a part.

    Raises:
        CallRejected: `reversed_segment`. Whether they lie in the video is for the video to say.
    """
    end = info.duration_seconds if end_seconds is None else end_seconds
    if not start_seconds <= end:
        raise CallRejected(
            CallErrorCode.REVERSED_SEGMENT, f"the part ends at {end:g} s, before its start at {start_seconds:g} s"
        )
    return start_seconds, end
