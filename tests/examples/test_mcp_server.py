"""examples/mcp_server, asked by the official client: its tools in this process, then the program over stdio."""

from __future__ import annotations

import base64
import io
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("mcp", reason="the package mcp is not installed")
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, ImageContent, TextContent

from tests.examples.conftest import EXAMPLES
from tests.videos.files import read_number, write_video
from verl_video_tools.video import Video

SCRIPT = EXAMPLES / "mcp_server" / "video_server.py"
MAKE_SERVER = runpy.run_path(str(SCRIPT))["make_server"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of 60 frames at 10 per second and a link to it, a file that is no video, and links that lead outside."""
    outside = tmp_path_factory.mktemp("outside")
    folder = tmp_path_factory.mktemp("videos")
    write_video(outside / "secret.mp4", num_frames=12)
    write_video(folder / "clip.mp4", num_frames=60, fps=10)
    (folder / "deeper").mkdir()
    (folder / "deeper" / "Linked.MP4").symlink_to(folder / "clip.mp4")
    (folder / "notes.txt").write_text("not a video")
    (folder / "broken.mp4").write_bytes(b"no video at all")
    (folder / "escape.mp4").symlink_to(outside / "secret.mp4")
    (folder / "escape").symlink_to(outside)
    (folder / "loop.mp4").symlink_to(folder / "loop.mp4")
    return folder


def frames(result: CallToolResult) -> tuple[list[str], list[int], list[Image.Image]]:
    """Labels, the numbers that the pictures show, and the pictures; labels and pictures must take turns."""
    assert not result.is_error, result.content
    labels, pictures = result.content[::2], result.content[1::2]
    assert all(isinstance(label, TextContent) for label in labels)
    assert all(isinstance(picture, ImageContent) for picture in pictures)
    opened = [Image.open(io.BytesIO(base64.b64decode(picture.data))) for picture in pictures]
    return [label.text for label in labels], [read_number(np.asarray(picture)) for picture in opened], opened


def error(result: CallToolResult) -> str:
    assert result.is_error
    (content,) = result.content
    return content.text


async def test_the_tools_show_what_is_asked_for(root: Path) -> None:
    async with Client(MAKE_SERVER(root)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["list_videos", "probe_video", "show_frames_at", "show_frames_between", "zoom"]
        assert all(tool.description and tool.annotations.read_only_hint for tool in tools.values())
        info = (await client.call_tool("probe_video", {"video": "deeper/Linked.MP4"})).structured_content
        assert (info["duration_seconds"], info["num_frames"], info["width"], info["height"]) == (6.0, 60, 96, 64)
        at = frames(await client.call_tool("show_frames_at", {"video": "clip.mp4", "seconds": [3.05, 0, 6.0, 0]}))
        assert at[:2] == (
            ["frame 30 at 3.000 s:", "frame 0 at 0.000 s:", "frame 59 at 5.900 s:", "frame 0 at 0.000 s:"],
            [30, 0, 59, 0],
        )
        whole = await client.call_tool("show_frames_between", {"video": "clip.mp4", "num_frames": 3})
        assert frames(whole)[1] == [0, 30, 59]
        part = {"video": "clip.mp4", "start_seconds": 2.0, "end_seconds": 2.1, "frame_pixels": 48 * 32}
        _, numbers, (first, _) = frames(await client.call_tool("show_frames_between", part))
        assert numbers == [20, 21] and first.size == (48, 32)


async def test_videos_below_the_folder_are_listed(root: Path) -> None:
    async with Client(MAKE_SERVER(root)) as client:
        listed = (await client.call_tool("list_videos")).structured_content
    assert listed == {"result": ["broken.mp4", "clip.mp4", "deeper/Linked.MP4"]}


async def test_a_part_of_a_frame(root: Path) -> None:
    async with Client(MAKE_SERVER(root)) as client:
        box = {"video": "clip.mp4", "seconds": 3.0, "box": [0.25, 0, 0.75, 0.5]}
        result = await client.call_tool("zoom", box)
    assert not result.is_error, result.content
    picture = Image.open(io.BytesIO(base64.b64decode(result.content[1].data)))
    with Video(root / "clip.mp4") as video:
        whole = video.frames_at([3.0]).frames_THWC[0]
    assert picture.size == (48, 32)
    assert np.abs(np.asarray(picture).astype(int) - whole[:32, 24:72]).mean() < 10


async def test_no_other_file_is_opened(root: Path) -> None:
    outside = next(root.glob("escape.mp4")).resolve()
    names = ["../outside0/secret.mp4", str(outside), "escape.mp4", "escape/secret.mp4", "loop.mp4", "notes.txt"]
    names += ["deeper", "", ".", "clip.mp4\0", "x" * 5000 + ".mp4", "absent.mp4"]
    async with Client(MAKE_SERVER(root)) as client:
        for name in names:
            text = error(await client.call_tool("probe_video", {"video": name}))
            assert "there is no video" in text, name
            assert str(root) not in text


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("show_frames_at", {"seconds": [0.0, 6.5]}, "clip.mp4: time 6.5 s is outside"),
        ("show_frames_at", {"seconds": []}, "seconds"),
        ("show_frames_at", {"seconds": [0.0] * 33}, "seconds"),
        ("show_frames_at", {"seconds": [1.0], "frame_pixels": 1 << 30}, "frame_pixels"),
        ("show_frames_between", {"start_seconds": 4, "end_seconds": 2}, "end >= start"),
        ("zoom", {"seconds": 1.0, "box": [0.5, 0, 0.2, 1]}, "left < right"),
        ("zoom", {"seconds": 1.0, "box": [0, 0, 96, 64]}, "leaves the frame"),
        ("probe_video", {"video": "broken.mp4"}, "broken.mp4: cannot be opened as a video"),
    ],
)
async def test_refusals_are_told(root: Path, tool: str, arguments: dict[str, Any], message: str) -> None:
    async with Client(MAKE_SERVER(root)) as client:
        text = error(await client.call_tool(tool, {"video": "clip.mp4", **arguments}))
    assert message in text
    assert str(root) not in text


@pytest.mark.slow
async def test_the_program_over_standard_output(root: Path, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    server = StdioServerParameters(command=sys.executable, args=[str(SCRIPT), str(root)], env=environment)
    with (tmp_path / "stderr.txt").open("w+") as stderr:
        async with Client(stdio_client(server, errlog=stderr)) as client:
            result = await client.call_tool("show_frames_at", {"video": "clip.mp4", "seconds": [2.5, 4.0]})
            assert frames(result)[1] == [25, 40]
        stderr.seek(0)
        assert stderr.read() == ""
