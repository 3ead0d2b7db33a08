"""Serve the videos of a folder to agents over the Model Context Protocol (https://modelcontextprotocol.io).

python examples/mcp_server/video_server.py /data/videos                # over standard input and output
python examples/mcp_server/video_server.py /data/videos --port 8100    # at http://127.0.0.1:8100/mcp
"""

from __future__ import annotations

import argparse
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from PIL import Image as Picture
from pydantic import Field

from verl_video_tools.core.errors import VideoError
from verl_video_tools.video import (
    Box,
    FrameRequest,
    Region,
    Video,
    decode_frames,
    fit_pixels,
    open_video,
    uniform_seconds,
)

SUFFIXES = {".avi", ".m4v", ".mkv", ".mov", ".mp4", ".ts", ".webm"}  # playlists would name further files to open
DEADLINE_SECONDS = 30.0
MAX_FRAMES = 32  # of one call
MAX_FRAME_PIXELS = 1_000_000

INSTRUCTIONS = """Frames of the videos of one folder. Times are seconds from the first frame. Start with list_videos and
probe_video, skim with show_frames_between, then look closer with show_frames_at and zoom."""

VideoName = Annotated[str, Field(description="Name of a video, as list_videos returns it.")]
FramePixels = Annotated[int, Field(ge=1, le=MAX_FRAME_PIXELS, description="Maximum area of a shown frame in pixels.")]


def find_video(root: Path, name: str) -> Path | None:
    """The file of a video below `root`; None for any other file, also behind a link."""
    try:
        path = (root / name).resolve()
        is_shown = path.suffix.lower() in SUFFIXES and path.is_relative_to(root) and path.is_file()
    except (OSError, RuntimeError, ValueError):  # a name that is too long, a loop of links, a NUL
        return None
    return path if is_shown else None


@asynccontextmanager
async def opened(root: Path, name: str) -> AsyncIterator[Video]:
    """The video. Its errors go to the client, without the place of the folder."""
    path = find_video(root, name)
    if path is None:
        raise ToolError(f"there is no video {name!r:.200}; give a name that list_videos returns")
    try:
        yield await open_video(path, DEADLINE_SECONDS)
    except (VideoError, ValueError) as error:
        raise ToolError(str(error).replace(str(path), name)) from error


async def pictures(video: Video, request: FrameRequest) -> list[Any]:
    """The frames of a request, each after its number and time."""
    batch = await decode_frames(video, request, DEADLINE_SECONDS)
    content: list[Any] = []
    for index, seconds, frame in zip(batch.indices, batch.timestamps_seconds, batch.frames_THWC, strict=True):
        buffer = io.BytesIO()
        Picture.fromarray(frame).save(buffer, "JPEG", quality=90)
        content += [f"frame {index} at {seconds:.3f} s:", Image(data=buffer.getvalue(), format="jpeg")]
    return content


def make_server(root: Path) -> MCPServer[Any]:
    """A server whose tools show the videos below a folder, and nothing else."""
    root = root.resolve(strict=True)
    server: MCPServer[Any] = MCPServer("verl_video_tools", instructions=INSTRUCTIONS, log_level="WARNING")
    hints = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    shows = server.tool(annotations=hints, structured_output=False)

    @server.tool(annotations=hints)
    def list_videos() -> list[str]:
        """List the names of the videos."""
        names = [path.relative_to(root).as_posix() for path in root.rglob("*")]
        return sorted(name for name in names if find_video(root, name) is not None)

    @server.tool(annotations=hints)
    async def probe_video(video: VideoName) -> dict[str, float]:
        """Tell duration, number of frames, average frame rate, width and height of a video."""
        async with opened(root, video) as reader:
            fields = ("duration_seconds", "num_frames", "average_fps", "width", "height")
            return {field: getattr(reader.info, field) for field in fields}

    @shows
    async def show_frames_at(
        video: VideoName,
        seconds: Annotated[list[float], Field(min_length=1, max_length=MAX_FRAMES, description="Times of the frames.")],
        frame_pixels: FramePixels = 448 * 448,
    ) -> list[Any]:
        """Show the frames that are on screen at the given times, in the given order."""
        async with opened(root, video) as reader:
            size = fit_pixels(reader.info.width, reader.info.height, frame_pixels)
            return await pictures(reader, FrameRequest(*size, seconds=tuple(seconds)))

    @shows
    async def show_frames_between(
        video: VideoName,
        start_seconds: float = 0.0,
        end_seconds: float | None = None,
        num_frames: Annotated[int, Field(ge=1, le=MAX_FRAMES)] = 8,
        frame_pixels: FramePixels = 448 * 448,
    ) -> list[Any]:
        """Show frames spread evenly over a part of a video, both ends included; the part ends with the video."""
        async with opened(root, video) as reader:
            size = fit_pixels(reader.info.width, reader.info.height, frame_pixels)
            end = reader.info.duration_seconds if end_seconds is None else end_seconds
            seconds = uniform_seconds(start_seconds, end, num_frames)
            return await pictures(reader, FrameRequest(*size, seconds=seconds, unique=True))

    @shows
    async def zoom(
        video: VideoName,
        seconds: Annotated[float, Field(description="Time of the frame.")],
        box: Annotated[
            list[float],
            Field(
                min_length=4, max_length=4, description="[left, top, right, bottom], shares of the frame from 0 to 1."
            ),
        ],
        frame_pixels: FramePixels = 448 * 448,
    ) -> list[Any]:
        """Show a part of the frame at a time, cut out of the video at full resolution."""
        async with opened(root, video) as reader:
            region = Region(Box(*box), "normalised")
            part = region.in_pixels(reader.info.width, reader.info.height)
            size = fit_pixels(part.width, part.height, frame_pixels)
            return await pictures(reader, FrameRequest(*size, seconds=(seconds,), region=region))

    return server


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the videos of a folder over the Model Context Protocol.")
    parser.add_argument("videos", type=Path, help="folder of the videos; no other file is opened")
    parser.add_argument("--port", type=int, help="serve HTTP on this port of 127.0.0.1 instead of standard output")
    options = parser.parse_args()
    server = make_server(options.videos)
    if options.port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
