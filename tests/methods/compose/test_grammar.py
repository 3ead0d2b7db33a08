"""The grammar of compositions: what it reads of any text, and what the model is told of the tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.types import Sample, VideoInfo, content_text
from verl_video_tools.methods import compose, get_method
from verl_video_tools.methods.compose import Compose
from verl_video_tools.methods.compose.composition import PACKAGED, TOOLS
from verl_video_tools.methods.toolkit import grammar

TAGS = [f"<{slash}{name}>" for name in ("think", "tool_call", "answer") for slash in ("", "/")]
CALL = '{"name": "clip_sample", "arguments": {"prompt": "a"}}'
PIECES = [*TAGS, CALL, '{"name": 3}', "{", "A", "so", " ", "\n", "</tool_call", '"parameters"']
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)

CALLS: dict[str, dict[str, Any]] = {
    "crop_video": {"start_time": 1.0, "end_time": 2.5},
    "video_zoom": {"segment": [1.0, 2.5], "fps": 2},
    "FrameAt": {"t": 3.5},
    "VideoClip": {"t_start": 1.0, "t_end": 2.5},
    "choose_frames": {"start_frame": 10, "end_frame": 40},
    "get_frame_number": {"time": "01:05"},
    "uniform_sample": {"start_frame": 10, "end_frame": 40},
    "clip_sample": {"start_frame": 10, "end_frame": 40, "prompt": "a dog"},
    "zoom": {"time": 1.5, "box": [0.25, 0.0, 0.75, 1.0]},
    "ask_model": {"question": "What is shown?", "time": 1.5},
}


@given(text=texts)
def test_turns_are_read_as_longvts(text: str) -> None:
    assert Compose(max_calls_per_turn=99).parse(text) == grammar.parse_turn(text)


@pytest.mark.parametrize("name", PACKAGED)
def test_the_model_is_told_of_every_tool_and_of_no_other(name: str) -> None:
    prompt = Path(compose.__file__).with_name("prompt.txt")
    method = get_method("compose", file=name, prompt_file=str(prompt))
    assert isinstance(method, Compose)
    composition = method.composition
    system, _ = method.prompt(Sample("?", "A", "v.mp4", "mc"), VideoInfo(9.0, 90, 10.0, 64, 36), ())
    told = content_text(system.content)
    for tool in composition.descriptions.values():
        assert tool.description in told
    assert [tool for tool in TOOLS if f'"{tool}"' in told] == list(composition.tools)
    assert "video_path" not in told


def test_surplus_calls_are_refused() -> None:
    call = '<tool_call>{"name": "crop_video", "arguments": {}}</tool_call>'
    parsed = Compose(max_calls_per_turn=1).parse(f"<think>so</think>{call}{call}")
    assert [str(one.error) for one in parsed.calls] == [
        "None",
        "multiple_calls: at most 1 calls in one turn are carried out",
    ]
