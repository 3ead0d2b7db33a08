"""Words that a tool answers, as every method shows them, and as verl's own tool loop does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.talking_method import SUBTITLES, SubtitleSearch
from tests.videos.files import MakeVideo
from verl_video_tools import methods
from verl_video_tools.core.types import (
    CallRecord,
    FrameRecord,
    ImagePart,
    Sample,
    Tool,
    ToolContext,
    ToolDescription,
    ToolOutcome,
    ToolPlan,
    VideoInfo,
    content_images,
    content_text,
)
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.toolkit import AskModel, FrameRequest, with_text
from verl_video_tools.verl_plugin import stock_tools
from verl_video_tools.verl_plugin.stock_tools import VideoTool

VIDEO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=96, height=64)
WITH_TOOLS = [name for name in METHOD_NAMES if name != "direct"]


def outcome(text: str | None, num_images: int) -> ToolOutcome:
    records = [FrameRecord(index, index / 30, 28, 28) for index in range(num_images)]
    record = CallRecord("of another package", {}, ok=True, frames=records, text=text)
    pixels = np.zeros((28, 28, 3), np.uint8)
    return ToolOutcome(record, tuple(ImagePart(frame, pixels) for frame in records), VIDEO)


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_every_method_shows_the_words_of_a_tool(name: str) -> None:
    method = get_method(name)
    alone = method.observe([outcome("a kettle {is} here", 0)], 3)
    assert content_text(alone).count("a kettle {is} here") == 1 and not content_images(alone)
    both = method.observe([outcome("a kettle {is} here", 2)], 3)
    text = content_text(both)
    assert text.count("a kettle {is} here") == 1 and len(content_images(both)) == 2
    assert text.index("a kettle") < text.index("<image>")


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_call_without_words_is_shown_as_ever(name: str) -> None:
    """Words are all that they add: without the line that holds them, the observation is that of frames alone."""
    method = get_method(name)
    frames, both = (method.observe([outcome(text, 2)], 3) for text in (None, "a kettle"))
    assert content_text(both).replace("a kettle\n", "", 1) == content_text(frames)
    assert with_text(outcome(None, 2), frames) is frames


# ------------------------------------------------------------------------------------------------ verl's own tool loop


@dataclass(frozen=True, kw_only=True)
class Both:
    """A frame and words."""

    name: ClassVar[str] = "both"
    description: ClassVar[ToolDescription] = ToolDescription(
        name=name, description="Shows and tells.", parameters={"n": ("integer", "Any.")}
    )

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        return ToolPlan(FrameRequest(width=28, height=28, indices=(30,)), text="and so it is")


@dataclass(frozen=True, kw_only=True)
class Stocked(LongVT):
    """LongVT with tools that answer in words, for verl's loop."""

    name: ClassVar[str] = "stocked"
    tool_descriptions: ClassVar[tuple[ToolDescription, ...]] = (
        SubtitleSearch.description,
        AskModel.description,
        Both.description,
    )

    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        return {SubtitleSearch.name: SubtitleSearch(), AskModel.name: AskModel(), Both.name: Both()}


@pytest.fixture
def stocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.REGISTERED, "stocked", f"{__name__}:Stocked")
    monkeypatch.setattr(stock_tools, "get_method", lambda name, **fields: Stocked(**fields))


async def response_of(tool: str, arguments: dict[str, Any], video: str) -> Any:
    made = type("Made", (VideoTool,), {"method_name": "stocked", "tool_name": tool})({"type": "native"})
    bound = {"video_path": video, "subtitles": [subtitle.to_row() for subtitle in SUBTITLES]}
    instance_id, _ = await made.create(create_kwargs=bound)
    response, _, _ = await made.execute(instance_id, arguments)
    await made.release(instance_id)
    assert made._bound == {}
    return response


async def test_words_in_verls_own_loop(stocked: None, make_video: MakeVideo) -> None:
    found = await response_of("search_subtitles", {"words": "hot"}, make_video())
    assert (found.text, found.image) == ("[10.0-12.0 s] The red kettle is hot.", None)
    nothing = await response_of("search_subtitles", {"words": "teapot"}, make_video())
    assert nothing.text.startswith("nothing_found: ")
    both = await response_of("both", {"n": 1}, make_video())
    assert both.text == "Shown above, in order: 1.00 s\nand so it is" and len(both.image) == 1
    without = await response_of("ask_model", {"question": "?", "time": 1}, make_video())
    assert without.text == "model_error: the model of this tool could not be asked"


def test_rows_hold_subtitles_for_tools() -> None:
    """What a tool finds is what the row says, whatever spelling of the words."""
    row = {
        "extra_info": {"question": "q", "video_path": "v.mp4", "subtitles": [one.to_row() for one in SUBTITLES]},
        "reward_model": {"ground_truth": "B"},
    }
    assert Sample.from_row(row).subtitles == SUBTITLES
