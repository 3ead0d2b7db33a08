"""The tool of docs/tools.md does what the page says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.talking_method import ANSWER, Talking, call, sample
from tests.videos.files import MakeVideo
from verl_video_tools.methods import toolkit
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy

PAGE = Path(__file__).parents[1] / "docs" / "tools.md"


async def test_the_first_tool_of_the_page(make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {
        "vt": toolkit,
        "dataclass": dataclass,
        "Mapping": Mapping,
        "Any": Any,
        "ClassVar": ClassVar,
    }
    (source, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(source, str(PAGE), "exec"), names)
    monkeypatch.setattr(Talking, "more", {"what_is_said": names["WhatIsSaid"]()})
    turns = [call("what_is_said", time=time) for time in (11, 15, 1e9)] + [ANSWER]
    method = Talking(initial_frames=2, end_on_call_error=False)
    trajectory = await Episode(method, sample(make_video())).run(ScriptedPolicy(turns))
    assert trajectory.calls()[0].text == "The red kettle is hot."
    assert [str(record.error).partition(":")[0] for record in trajectory.calls()[1:]] == [
        "nothing_found",
        "out_of_range",
    ]


def test_every_code_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [code.value for code in toolkit.CallErrorCode if f"`{code.value}`" not in text] == []
