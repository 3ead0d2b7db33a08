"""Subtitles over the Model Context Protocol: what clients read, and that no other file is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
from mcp import Client
from mcp.types import CallToolResult

from tests.videos.files import write_video
from verl_video_tools.core.errors import UsageError
from verl_video_tools.mcp_server.folder import VideoFolder
from verl_video_tools.mcp_server.limits import CallLimits
from verl_video_tools.mcp_server.server import VideoTools, make_server
from verl_video_tools.mcp_server.subtitles import SubtitleFolder

SRT = """1
00:00:00,500 --> 00:00:01,500
<i>Good</i> morning.

2
00:00:03,000 --> 00:00:04,000
The kettle is hot.
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Videos of six seconds, and subtitles of one of them beside links that lead outside."""
    videos, subtitles = tmp_path_factory.mktemp("videos"), tmp_path_factory.mktemp("subtitles")
    (videos / "deeper").mkdir()
    for name in ("deeper/clip.mp4", "mute.mp4", "escape.mp4"):
        write_video(videos / name, num_frames=60, fps=10)
    (subtitles / "deeper").mkdir()
    (subtitles / "deeper" / "clip.srt").write_text(SRT)
    outside = tmp_path_factory.mktemp("outside") / "secret.srt"
    outside.write_text(SRT)
    (subtitles / "escape.srt").symlink_to(outside)
    return videos, subtitles


async def told(folders: tuple[Path, Path], name: str, arguments: dict[str, Any]) -> CallToolResult:
    tools = VideoTools(VideoFolder(folders[0]), CallLimits(), subtitles=SubtitleFolder(folders[1]))
    async with Client(make_server(tools, searches=False, tells_subtitles=True)) as asked:
        return await asked.call_tool(name, arguments)


def text(result: CallToolResult) -> str:
    return result.content[0].text


async def test_captions_of_a_part_and_by_words(folders: tuple[Path, Path]) -> None:
    whole = await told(folders, "subtitles_between", {"video": "deeper/clip.mp4"})
    assert text(whole) == "[0.5-1.5 s] Good morning.\n[3.0-4.0 s] The kettle is hot."
    part = await told(folders, "subtitles_between", {"video": "deeper/clip.mp4", "start_seconds": 2})
    found = await told(folders, "search_subtitles", {"video": "deeper/clip.mp4", "words": "kettle"})
    assert text(part) == text(found) == "[3.0-4.0 s] The kettle is hot."
    assert not (whole.is_error or part.is_error or found.is_error)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search_subtitles", {"video": "deeper/clip.mp4", "words": "teapot"}, "nothing_found: "),
        ("search_subtitles", {"video": "mute.mp4", "words": "kettle"}, "no_subtitles: "),
        ("search_subtitles", {"video": "escape.mp4", "words": "kettle"}, "no_subtitles: "),
        ("search_subtitles", {"video": "../clip.mp4", "words": "kettle"}, "the folder has no video"),
        ("subtitles_between", {"video": "deeper/clip.mp4", "start_seconds": 5, "end_seconds": 9}, "out_of_range: "),
        ("subtitles_between", {"video": "deeper/clip.mp4", "start_seconds": 5, "end_seconds": 4}, "reversed_segment: "),
    ],
)
async def test_refusals_are_told(
    folders: tuple[Path, Path], name: str, arguments: dict[str, Any], message: str
) -> None:
    result = await told(folders, name, arguments)
    assert result.is_error and message in text(result)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        SubtitleFolder(tmp_path / "gone")
