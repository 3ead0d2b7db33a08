"""Parts cross: any tool by name and JSON, under any plan of initial frames, in a rollout paid by nearly every term."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.methods.compose.test_grammar import CALLS
from tests.methods.doubles import ScoringRetriever
from tests.videos.files import MakeVideo
from verl_video_tools.core.types import Sample, StopReason, Subtitle
from verl_video_tools.methods import get_method
from verl_video_tools.methods.compose import Compose
from verl_video_tools.methods.compose.tools import TOOLS
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy
from verl_video_tools.services.tool_model import ScriptedToolModel

PLANS = {
    "none": "{plan: none}",
    "uniform": "{plan: uniform, num_frames: 4, box: [64, 36]}",
    "rate": "{plan: rate, fps: 0.5, max_frames: 6, max_pixels: 50176}",
    "even_rate": "{plan: even_rate, fps: 0.5, max_frames: 6, min_pixels: 784, max_pixels: 50176}",
    "ladder": "{plan: ladder, low: [4, 28], high: [2, 56]}",
}
TERMS = """
  - {name: format, gate: all, gate_from: 1.0}
  - {name: accuracy, gate: [tool]}
  - {name: tool, weight: 0.5}
  - {name: turns, weight: 0.25}
  - {name: calls, weight: -0.125}
  - {name: temporal_iou}
  - {name: behavior}
"""
SAMPLE = Sample(
    "Which?\nA. a cat\nB. a dog",
    "A",
    "v.mp4",
    "mc",
    ("a cat", "a dog"),
    video_segment_seconds=(1.0, 2.5),
    extra_info={"classification": "active"},
    subtitles=(Subtitle(1.0, 2.0, "a dog barks"),),
)

LABELS = {"zoom": "1.50 s, part [0.25, 0, 0.75, 1]", "grid": "row by row: 1.00 s, 1.50 s, 2.00 s, 2.50 s"}
"""Of what is neither a whole frame nor a single one."""


CROSSED = [
    (grammar, tool, list(PLANS)[(number + shift) % len(PLANS)])
    for number, tool in enumerate(TOOLS)
    for grammar, shift in (("hermes", 0), ("tags", 2))
]
"""Each tool in both grammars, under two plans; each plan with five tools in each grammar."""


@pytest.mark.parametrize(("grammar", "tool", "plan"), CROSSED)
async def test_a_call_of_any_tool_is_shown_and_paid(
    grammar: str, tool: str, plan: str, tmp_path: Path, make_video: MakeVideo
) -> None:
    path = tmp_path / "crossed.yaml"
    path.write_text(
        f"grammar: {{name: {grammar}}}\ninitial_frames: {PLANS[plan]}\ntools: [{{name: {tool}}}]\nreward:{TERMS}"
    )
    method = get_method("compose", file=str(path))
    assert isinstance(method, Compose)
    writes, sample = method.composition.grammar, replace(SAMPLE, video_path=make_video(2100))
    turns = [writes.write_call("so", tool, CALLS[tool]), writes.write_answer("so", "A")]
    episode = Episode(method, sample, retriever=ScoringRetriever(), tool_model=ScriptedToolModel(["a dog"]))
    trajectory = await episode.run(ScriptedPolicy(turns))
    assert trajectory.stop_reason is StopReason.ANSWER and trajectory.flags == []
    (call,) = trajectory.executed_calls()
    assert bool(method.prompt_subtitles(sample)) == ("subtitles" not in tool), "told once"
    observation = trajectory.turns[0].observation
    assert observation is not None and observation.count("<image>") == len(call.frames)
    assert call.frames or "is: " in observation or "a dog" in observation, "what shows no frames answers in words"
    if tool in LABELS:
        assert f"{LABELS[tool]}: <image>" in observation
    reward = await method.score(trajectory, sample)
    assert reward.keys() == {"score", *method.reward_components}
    assert reward["score"] == pytest.approx(sum(value for key, value in reward.items() if key != "score"))
    seconds = {"crop_video", "VideoClip", "video_zoom"}
    overlap = 1.0 if tool in seconds else reward["temporal_iou"]
    assert reward == pytest.approx(
        {
            "format": 1.0,
            "accuracy": 1.0,
            "tool": 0.5,
            "turns": 0.25,
            "calls": -0.125,
            "temporal_iou": overlap,
            "behavior": 0.5,
            "score": 3.125 + overlap,
        }
    )
