"""What a VideoZoomer rollout is shown: labels, wrappers and errors, ours and in the published order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import CallError
from verl_video_tools.core.types import (
    CallRecord,
    FrameRecord,
    ImagePart,
    Sample,
    ToolOutcome,
    VideoInfo,
    content_text,
)
from verl_video_tools.methods import get_method
from verl_video_tools.replay import replay

FOUR = ImagePart(FrameRecord(120, 4.0, 2, 2))
QUESTION = "What happens?\nA. nothing\nB. a goal"
REFUSED = CallRecord("video_zoom", {}, ok=False, error=CallError("out_of_range", "too far"))
FAILED = CallRecord("video_zoom", {}, ok=False, error=CallError("video_error", "/data/goal.mp4 is damaged"))

RELEASED = """
user = "{question}|{frames}"
observation = "<tool_response>\\nintro:\\n{frames}\\n</tool_response>\\ngo on"
observation_last = "<tool_response>\\nintro:\\n{frames}\\n</tool_response>\\ngo onno more"
refusal = "<tool_response>\\nError: {error}<tool_response>look at it"
refusal_last = "<tool_response>\\nError: {error}<tool_response>look at itno more"
unreadable = "<tool_response>\\nERROR prefix {error}.\\n</tool_response>\\nlook at it"
unreadable_last = "<tool_response>\\nERROR prefix {error}.\\n</tool_response>\\nlook at itno more"
too_many_frames = "asked {num_frames}, at most {max_frames}."
no_numbers = "invalid: {reason}, in {request}"
"""
"""Stands for the sentences of a checkpoint; the tags and their order are those that the specification quotes."""


@pytest.mark.parametrize("turns_left", [3, 1])
def test_strict_observations_share_one_wrapper(turns_left: int) -> None:
    method = get_method("videozoomer")
    for outcome in (ToolOutcome(CallRecord("video_zoom", {}, ok=True), (FOUR,)), ToolOutcome(REFUSED)):
        inside, closing, advice = content_text(method.observe([outcome], turns_left)).partition("\n</tool_response>\n")
        assert inside.startswith("<tool_response>\n") and closing
        assert inside.endswith(("<frame0_time4.00s><image>", "Error: out_of_range: too far"))
        assert ("No zoom is left" in advice) == (turns_left == 1)


@pytest.mark.parametrize("compat", ["strict", "reference"])
def test_a_failure_that_is_not_the_policys_names_no_file(compat: str) -> None:
    text = content_text(get_method("videozoomer", compat=compat).observe([ToolOutcome(FAILED)], 2))
    assert "the frames could not be read" in text and "goal.mp4" not in text


def turn(request: str) -> str:
    return f"<think>so</think><video_zoom>{request}</video_zoom>"


def observations(video: str, *requests: str, **settings: Any) -> list[str]:
    turns = [*map(turn, requests), "<think>so</think><answer>B</answer>"]
    result = replay("videozoomer", video, QUESTION, "B", turns, settings=settings)
    return [found["observation"] for found in result["turns"] if found["observation"] is not None]


def test_published_order(make_video: MakeVideo) -> None:
    """Section b.4 of the specification, in our words."""
    requests = (
        '{"segment": [4, 6], "fps": 1}',
        '{"segment": [0, 17], "fps": 1}',
        '{"segment": [4, 6]',
        '{"segment": [8, 0], "fps": 2}',
    )
    shown, refused, unreadable, last = observations(make_video(), *requests, compat="reference")
    frames = "<frame0_time4.00s><image><frame1_time6.00s><image>"
    assert shown.startswith("<tool_response>\n") and f":\n{frames}\n</tool_response>\nThink" in shown
    assert refused.startswith(
        "<tool_response>\nError: 17 frames are more than the 16 that a zoom shows.<tool_response>T"
    )
    assert unreadable.startswith("<tool_response>\nERROR: .\n</tool_response>\nThink")
    assert last.startswith("<tool_response>\nError: Number of samples, -16, must be non-negative.<tool_response>Think")
    assert last.endswith("</answer>.No zoom is left, so do not write <video_zoom> again: give your answer now.")


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (
            '{"segment": [4, 6], "fps": 1}',
            "\nintro:\n<frame0_time4.00s><image><frame1_time6.00s><image>\n</tool_response>",
        ),
        ('{"segment": [4, 4.1], "fps": 2}', "\nintro:\n\n</tool_response>\ngo on"),
        ('{"segment": [0, 17], "fps": 1}', "\nError: asked 17, at most 16.<tool_response>look at it"),
        ('{"segment": [8, 0], "fps": 2}', "\nError: Number of samples, -16, must be non-negative.<tool_response>look"),
        ('{"segment": [0, 1e308], "fps": 9}', "\nError: cannot convert float infinity to integer<tool_response>look"),
        ('{"fps": 2}', "\nERROR prefix invalid: 'segment', in {'fps': 2}.\n</tool_response>\nlook at it"),
        (
            '{"segment": [4, 6], "fps": "x"}',
            "\nERROR prefix invalid: could not convert string to float: 'x', in {'segment': [4, 6], 'fps': 'x'}.\n",
        ),
        ("{}{}", "\nERROR prefix .\n</tool_response>\nlook at it"),
        ("{4}", "\nERROR prefix Expecting property name enclosed in double quotes: line 1 column 2 (char 1).\n</tool"),
    ],
)
def test_templates_file_restores_the_sentences(request_: str, told: str, make_video: MakeVideo, tmp_path: Path) -> None:
    path = tmp_path / "released.toml"
    path.write_text(RELEASED)
    fields: dict[str, Any] = {"compat": "reference", "templates_file": str(path)}
    first, last = observations(make_video(), request_, request_, max_turns=3, **fields)
    assert first.startswith(f"<tool_response>{told}")
    assert last == f"{first}no more"
    method = get_method("videozoomer", **fields)
    user = method.prompt(Sample("Why?\n", "B", "v.mp4", "mc"), VideoInfo(1.0, 30, 30.0, 2, 2), [FOUR])[-1]
    assert content_text(user.content) == "Why?|<frame0_time4.00s><image>"
