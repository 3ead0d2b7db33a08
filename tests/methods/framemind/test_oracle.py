"""FrameMind's scripted expert: its templates, true thoughts, calls that are carried out, and rows made of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from verl_video_tools.core.types import ParsedTurn
from verl_video_tools.data.sft import export_sft
from verl_video_tools.data.synthetic_rows import load_rows, make_demo
from verl_video_tools.methods.framemind import FrameMind
from verl_video_tools.methods.framemind.oracle import FrameMindOracle
from verl_video_tools.methods.toolkit.oracle import Script
from verl_video_tools.synthetic.questions import KINDS, make_questions
from verl_video_tools.synthetic.world import random_spec

METHOD = FrameMind(low=(8, 56), high=(4, 112), tool_side_pixels=56, label_decimals=1)
WORLD = [(spec, question) for spec in map(random_spec, range(60)) for question in make_questions(spec, count=4, seed=0)]
EXPERT = FrameMindOracle(seed=1, method=METHOD)


def parsed(script: Script) -> list[ParsedTurn]:
    turns = [METHOD.parse(text) for text in script.turns]
    assert all(turn.well_formed for turn in turns)
    assert [turn.answer is None for turn in turns] == [True] * (len(turns) - 1) + [False]
    assert len(turns) <= METHOD.max_turns
    return turns


@pytest.mark.parametrize("kind", KINDS)
def test_a_perfect_expert_answers_right(kind: str) -> None:
    asked = [(spec, question) for spec, question in WORLD if question.kind == kind]
    right = sum(parsed(EXPERT.script(spec, question))[-1].answer == question.answer for spec, question in asked)
    assert right >= 0.97 * len(asked)


def test_templates() -> None:
    scripts = [EXPERT.script(spec, question) for spec, question in WORLD]
    tools = {"frame": ["FrameAt"], "clip": ["VideoClip"], "refine": ["VideoClip", "FrameAt"]}
    assert set(Counter(script.template for script in scripts)) == set(tools)
    for script in scripts:
        assert [call.name for turn in parsed(script) for call in turn.calls] == tools[script.template]
    assert scripts == [EXPERT.script(spec, question) for spec, question in WORLD]


def test_a_careless_expert_is_sometimes_wrong() -> None:
    expert = FrameMindOracle(seed=1, method=METHOD, imperfection=1.0)
    scripts = [expert.script(spec, question) for spec, question in WORLD]
    assert {script.template for script in scripts} == {"careless"}
    answers = [parsed(script)[-1].answer for script in scripts]
    right = sum(answer == question.answer for answer, (_, question) in zip(answers, WORLD, strict=True))
    assert right < 0.6 * len(WORLD)


@pytest.mark.slow
def test_rows(tmp_path: Path) -> None:
    folder = make_demo(tmp_path / "demo", 2, 1, 4, 0, ["framemind"])
    rows = load_rows(folder / "train.parquet")
    assert not any("frames" in row["extra_info"]["question"].splitlines()[0] for row in rows)
    settings = {"low": [8, 56], "high": [4, 112], "tool_side_pixels": 56, "label_decimals": 1}
    report = export_sft(folder / "train.parquet", tmp_path / "sft.parquet", settings=settings)
    assert report.kept.total() >= 0.8 * len(rows) and set(report.dropped) <= {"wrong answer"}
    for row in pq.read_table(tmp_path / "sft.parquet").to_pylist():
        assert row["agent_name"] == "framemind" and len(row["turns"]) in (2, 3)
