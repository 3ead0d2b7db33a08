"""The MCP server, asked by the official client: its tools in this process, the real command over stdio and HTTP."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, ImageContent, TextContent

from tests.videos.files import read_number, write_video
from verl_video_tools.mcp_server import server as server_module
from verl_video_tools.mcp_server.folder import VideoFolder
from verl_video_tools.mcp_server.limits import CallLimits
from verl_video_tools.mcp_server.server import VideoTools, make_server
from verl_video_tools.video import Video

REPO = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "verl_video_tools.cli", "mcp"]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VVT_FRAME_CACHE_BYTES": "0"}
TOOLS = [
    *("list_videos", "probe_video", "show_frames_at", "show_frames_between"),
    *("zoom", "show_grid", "frame_number_at"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two videos of 60 frames at 10 per second, beside a file that is none, and links that lead outside."""
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


def client(root: Path, limits: CallLimits | None = None, **options: Any) -> Client:
    tools = VideoTools(VideoFolder(root), limits or CallLimits(), **options)
    return Client(make_server(tools, searches=options.get("retriever") is not None))


def frames(result: CallToolResult) -> tuple[list[str], list[Image.Image]]:
    """Labels and pictures, which must take turns."""
    assert not result.is_error, result.content
    labels, pictures = result.content[::2], result.content[1::2]
    assert all(isinstance(label, TextContent) for label in labels)
    assert all(isinstance(picture, ImageContent) for picture in pictures)
    opened = [Image.open(io.BytesIO(base64.b64decode(picture.data))) for picture in pictures]
    assert [f"image/{picture.format.lower()}" for picture in opened] == [picture.mime_type for picture in pictures]
    return [label.text for label in labels], opened


def numbers(pictures: Sequence[Image.Image]) -> list[int]:
    return [read_number(np.asarray(picture)) for picture in pictures]


def error(result: CallToolResult) -> str:
    assert result.is_error
    (content,) = result.content
    return content.text


# ------------------------------------------------------------------------------------------------------------ the tools


async def test_tools_are_described(root: Path) -> None:
    async with client(root) as asked:
        tools = {tool.name: tool for tool in (await asked.list_tools()).tools}
    assert list(tools) == TOOLS
    assert all(tool.description and tool.annotations.read_only_hint for tool in tools.values())
    show = tools["show_frames_at"].input_schema
    assert show["required"] == ["video", "seconds"]
    assert show["properties"]["seconds"]["items"] == {"type": "number"}


async def test_list_and_probe(root: Path) -> None:
    async with client(root) as asked:
        listed = (await asked.call_tool("list_videos")).structured_content
        assert listed == {"videos": ["broken.mp4", "clip.mp4", "deeper/Linked.MP4"], "num_videos": 3}
        some = (await asked.call_tool("list_videos", {"contains": "LINK"})).structured_content
        assert some == {"videos": ["deeper/Linked.MP4"], "num_videos": 1}
        for name in ("clip.mp4", "deeper/Linked.MP4"):
            info = (await asked.call_tool("probe_video", {"video": name})).structured_content
            assert info == {
                "duration_seconds": 6.0,
                "num_frames": 60,
                "average_fps": 10.0,
                "width": 96,
                "height": 64,
            }


async def test_frames_at_times_are_the_packages_own(root: Path) -> None:
    async with client(root) as asked:
        result = await asked.call_tool("show_frames_at", {"video": "clip.mp4", "seconds": [3.05, 0, 6.0, 0]})
    labels, pictures = frames(result)
    assert labels == ["frame 30 at 3.000 s:", "frame 0 at 0.000 s:", "frame 59 at 5.900 s:", "frame 0 at 0.000 s:"]
    assert numbers(pictures) == [30, 0, 59, 0]
    with Video(root / "clip.mp4") as video:
        expected_THWC = video.frames_at([3.05, 0, 6.0, 0]).frames_THWC
    assert np.array_equal(np.stack([np.asarray(picture) for picture in pictures]), expected_THWC)


async def test_frames_of_a_part(root: Path) -> None:
    async with client(root) as asked:
        whole = await asked.call_tool("show_frames_between", {"video": "clip.mp4", "num_frames": 3})
        part = {"video": "clip.mp4", "start_seconds": 2.0, "end_seconds": 2.1, "num_frames": 8}
        few = await asked.call_tool("show_frames_between", part)
        number = await asked.call_tool("frame_number_at", {"video": "clip.mp4", "seconds": 3.14})
    assert numbers(frames(whole)[1]) == [0, 30, 59]
    assert numbers(frames(few)[1]) == [20, 21]
    assert number.structured_content == {"frame_number": 31}


async def test_size_and_format(root: Path) -> None:
    async with client(root, jpeg_quality=90) as asked:
        arguments = {"video": "clip.mp4", "seconds": [1.0], "frame_pixels": 48 * 32}
        _, (picture,) = frames(await asked.call_tool("show_frames_at", arguments))
        assert (picture.size, picture.format) == ((48, 32), "JPEG")
        _, (large,) = frames(await asked.call_tool("show_frames_at", {**arguments, "frame_pixels": 1 << 30}))
        assert large.size == (96, 64)


async def test_a_part_of_a_frame(root: Path) -> None:
    box = {"video": "clip.mp4", "seconds": 3.0, "box": [0.25, 0, 0.75, 0.5]}
    async with client(root) as asked:
        labels, (picture,) = frames(await asked.call_tool("zoom", box))
        in_pixels = {**box, "box": [24, 0, 72, 32], "unit": "pixels", "frame_pixels": 24 * 16}
        _, (small,) = frames(await asked.call_tool("zoom", in_pixels))
    assert labels == ["frame 30 at 3.000 s, pixels [24, 0, 72, 32] of 96x64:"]
    with Video(root / "clip.mp4") as video:
        whole = video.frames_at([3.0]).frames_THWC[0]
    np.testing.assert_array_equal(np.asarray(picture), whole[:32, 24:72])
    assert small.size == (24, 16)


async def test_frames_in_one_picture(root: Path) -> None:
    part = {"video": "clip.mp4", "start_seconds": 1.0, "end_seconds": 3.0, "num_frames": 3, "columns": 2}
    async with client(root) as asked:
        labels, (picture,) = frames(await asked.call_tool("show_grid", part))
    assert labels == ["row by row: frame 10 at 1.000 s, frame 20 at 2.000 s, frame 30 at 3.000 s:"]
    cells = np.asarray(picture).reshape(2, 64, 2, 96, 3).swapaxes(1, 2).reshape(4, 64, 96, 3)
    assert [read_number(cell) for cell in cells[:3]] == [10, 20, 30] and not cells[3].any()


class NearFrame40:
    """A retriever that likes frame 40, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int, int]] = []

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        self.asked.append((video_path, text, candidates[0], candidates[-1]))
        return sorted(candidates, key=lambda index: abs(index - 40))[:num_frames]


async def test_search(root: Path) -> None:
    retriever = NearFrame40()
    async with client(root, retriever=retriever) as asked:
        assert [tool.name for tool in (await asked.list_tools()).tools] == [*TOOLS, "search_frames"]
        arguments = {"video": "clip.mp4", "text": "a red circle", "num_frames": 3, "end_seconds": 4.0}
        labels, pictures = frames(await asked.call_tool("search_frames", arguments))
    assert numbers(pictures) == [38, 39, 40]
    assert labels[0] == "frame 38 at 3.800 s:"
    assert retriever.asked == [(str(root / "clip.mp4"), "a red circle", 0, 40)]


# ------------------------------------------------------------------------------------------------------ what it refuses


async def test_no_other_file_is_opened(root: Path) -> None:
    outside = next(root.glob("escape.mp4")).resolve()
    names = ["../outside0/secret.mp4", str(outside), "escape.mp4", "escape/secret.mp4", "deeper/../clip.mp4"]
    names += ["loop.mp4", "notes.txt", "deeper", "", ".", "clip.mp4\0", "x" * 5000 + ".mp4", "absent.mp4"]
    async with client(root) as asked:
        for name in names:
            text = error(await asked.call_tool("probe_video", {"video": name}))
            assert "the folder has no video" in text, name
            assert str(root) not in text and "outside0" not in text.replace(name, "")


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("show_frames_at", {"seconds": [0.0, 6.5]}, "clip.mp4: time 6.5 s is outside [0, duration 6.0 s]"),
        ("show_frames_at", {"seconds": [-1.0]}, "time -1.0 s is outside"),
        ("show_frames_at", {"seconds": []}, "malformed_call: a call shows 1 to 4 frames, and this one asks for 0"),
        ("show_frames_at", {"seconds": [0.0] * 5}, "too_many_frames: a call shows 1 to 4 frames"),
        ("show_frames_at", {"seconds": "soon"}, "seconds"),
        ("show_frames_at", {"seconds": [1.0], "frame_pixels": 0}, "frame_pixels must be at least 1"),
        ("show_frames_at", {"seconds": [0, 1, 2]}, "and a call shows 15000; ask for fewer frames, or for frame_pixels"),
        ("show_frames_between", {"num_frames": 5}, "too_many_frames"),
        (
            "show_frames_between",
            {"start_seconds": 4, "end_seconds": 2, "num_frames": 2},
            "reversed_segment: the part ends at 2 s",
        ),
        ("show_frames_between", {"end_seconds": 60, "num_frames": 2}, "time 60.0 s is outside"),
        ("frame_number_at", {"seconds": 1e9}, "is outside"),
        ("zoom", {"seconds": 9.0, "box": [0, 0, 1, 1]}, "time 9.0 s is outside"),
        (
            "zoom",
            {"seconds": 1.0, "box": [0, 0, 96, 64]},
            "box_outside: box [0, 0, 96, 64] leaves the frame, which is [0,",
        ),
        ("zoom", {"seconds": 1.0, "box": [0.5, 0, 0.2, 1]}, "reversed_box: "),
        ("zoom", {"seconds": 1.0, "box": [0, 0, 1]}, "malformed_call: box must be [left, top, right, bottom]"),
        ("zoom", {"seconds": 1.0, "box": [0, 0, 1, 1], "unit": "percent"}, "unit"),
        ("show_grid", {"num_frames": 5}, "too_many_frames"),
        ("show_grid", {"num_frames": 3, "end_seconds": 1}, "and a call shows 15000; ask for fewer frames"),
        ("show_grid", {"num_frames": 2, "start_seconds": 3, "end_seconds": 1}, "reversed_segment"),
        ("show_grid", {"num_frames": 2, "columns": 0}, "columns"),
        ("search_frames", {"text": "a cat"}, "search_frames"),
    ],
)
async def test_refusals_are_told(root: Path, tool: str, arguments: dict[str, Any], message: str) -> None:
    async with client(root, CallLimits(max_frames=4, max_pixels=15_000)) as asked:
        text = error(await asked.call_tool(tool, {"video": "clip.mp4", **arguments}))
    assert message in text
    assert str(root) not in text


async def test_the_named_size_fits(root: Path) -> None:
    """What a refusal for size advises is then accepted."""
    async with client(root, CallLimits(max_pixels=15_000)) as asked:
        arguments: dict[str, Any] = {"video": "clip.mp4", "seconds": [0, 1, 2]}
        advised = error(await asked.call_tool("show_frames_at", arguments)).rpartition("frame_pixels of ")[2]
        labels, _ = frames(await asked.call_tool("show_frames_at", {**arguments, "frame_pixels": int(advised)}))
    assert len(labels) == 3


async def test_a_file_that_is_no_video(root: Path) -> None:
    async with client(root) as asked:
        text = error(await asked.call_tool("probe_video", {"video": "broken.mp4"}))
        assert "broken.mp4: cannot be opened as a video" in text and str(root) not in text
        assert not (await asked.call_tool("probe_video", {"video": "clip.mp4"})).is_error


# ------------------------------------------------------------------------------------------------- clients side by side


async def test_a_slow_picture_holds_up_no_other_client(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, release = threading.Event(), threading.Event()
    released: list[bool] = []
    encode_image = server_module.encode_image

    def slowly(*arguments: Any) -> tuple[str, bytes]:
        started.set()
        released.append(release.wait(5))
        return encode_image(*arguments)

    monkeypatch.setattr(server_module, "encode_image", slowly)
    async with client(root) as asked:
        slow = asyncio.create_task(asked.call_tool("show_frames_at", {"video": "clip.mp4", "seconds": [1.0]}))
        while not started.is_set():
            await asyncio.sleep(0.01)
        assert not (await asked.call_tool("probe_video", {"video": "clip.mp4"})).is_error
        release.set()
        assert numbers(frames(await slow)[1]) == [10]
    assert released == [True]


async def test_a_file_system_that_hangs_holds_up_one_call_up_to_its_deadline(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    path_of = VideoFolder.path_of

    def hang(folder: VideoFolder, name: str) -> Path:
        if name.startswith("deeper/"):
            release.wait(10)
        return path_of(folder, name)

    monkeypatch.setattr(VideoFolder, "path_of", hang)
    try:
        async with client(root, CallLimits(deadline_seconds=2.0)) as asked:
            hung = asyncio.create_task(asked.call_tool("probe_video", {"video": "deeper/Linked.MP4"}))
            await asyncio.sleep(0.1)
            assert not (await asked.call_tool("probe_video", {"video": "clip.mp4"})).is_error
            assert not hung.done()
            text = error(await hung)
        assert "not done within 2.0 s" in text and str(root) not in text
    finally:
        release.set()


# ----------------------------------------------------------------------------------------------------------- transports


@pytest.mark.slow
async def test_the_real_server_over_stdio(root: Path, tmp_path: Path) -> None:
    command, *arguments = COMMAND
    arguments += ["--videos", str(root), "--max-frames", "2"]
    server = StdioServerParameters(command=command, args=arguments, env=ENVIRONMENT, cwd=REPO)
    with (tmp_path / "stderr.txt").open("w+") as stderr:
        async with Client(stdio_client(server, errlog=stderr)) as asked:
            assert asked.server_info is not None and asked.server_info.name == "verl_video_tools"
            assert [tool.name for tool in (await asked.list_tools()).tools] == TOOLS
            result = await asked.call_tool("show_frames_at", {"video": "clip.mp4", "seconds": [2.5, 4.0]})
            labels, pictures = frames(result)
            assert (labels[0], numbers(pictures)) == ("frame 25 at 2.500 s:", [25, 40])
            assert "too_many_frames" in error(await asked.call_tool("show_frames_between", {"video": "clip.mp4"}))
            assert "no video" in error(await asked.call_tool("probe_video", {"video": "../secret.mp4"}))
        stderr.seek(0)
        assert stderr.read() == ""


@pytest.mark.slow
async def test_the_real_server_over_http(root: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--videos", root, "--port", str(port), cwd=REPO, env={**os.environ, **ENVIRONMENT}
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    assert process.returncode is None
                    await asyncio.sleep(0.05)
            writer.close()
            await writer.wait_closed()
            async with Client(f"http://127.0.0.1:{port}/mcp") as asked:
                result = await asked.call_tool("show_frames_at", {"video": "clip.mp4", "seconds": [2.5]})
        assert numbers(frames(result)[1]) == [25]
    finally:
        process.terminate()
        await process.wait()
