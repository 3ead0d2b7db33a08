"""Which grades a judge may give."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.judge_server import MODEL, JudgeServer, completion
from tests.services.judge.asking import failure, in_turn, judge_once
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services import prompts
from verl_video_tools.services.judge import JudgeConfig
from verl_video_tools.services.verdict import PROFILES

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

PARTIAL, RIGHT = completion('{"label": "partial"}'), completion('{"label": "correct"}')


@pytest.mark.parametrize("profile", ["graded", "longvt"])
async def test_three_grades(server: JudgeServer, profile: Any) -> None:
    server.reply = in_turn(PARTIAL)
    label, _ = await judge_once(JudgeConfig(base_url=server.base_url, profile=profile))
    assert label is AnswerLabel.PARTIAL


@pytest.mark.parametrize("reply", [PARTIAL, completion("Judgement: 0.5")])
async def test_a_strict_judge_knows_no_half(server: JudgeServer, reply: Any) -> None:
    server.reply = in_turn(reply, RIGHT)
    config = JudgeConfig(base_url=server.base_url, profile="videosiah")
    label, counters = await judge_once(config)
    assert (label, counters.failed_attempts) == (AnswerLabel.CORRECT, 1)
    reminder = server.requests[1]["messages"][-1]["content"]
    assert reminder.endswith("the label is correct or incorrect.")
    server.reply = lambda request: reply
    message, _ = await failure(config)
    assert "the judge's label 'partial' does not belong to the profile 'videosiah'" in message


@pytest.mark.parametrize("profile", PROFILES)
async def test_instructions_are_the_profiles_and_state_its_labels(server: JudgeServer, profile: Any) -> None:
    await judge_once(JudgeConfig(base_url=server.base_url, profile=profile))
    text = server.requests[0]["messages"][0]["content"]
    assert text == (files(prompts) / PROFILES[profile].prompt).read_text().strip()
    examples = [line for line in text.splitlines() if line.startswith("{")]
    asked, given = ([json.loads(line) for line in examples[start::2]] for start in (0, 1))
    assert {tuple(case) for case in asked} == {("question", "reference", "answer")}
    assert {case["label"] for case in given} == {label.value for label in PROFILES[profile].labels}
    assert ('"partial"' in text) == (AnswerLabel.PARTIAL in PROFILES[profile].labels)


async def test_temperature_is_sent_and_keeps_verdicts_apart(server: JudgeServer, tmp_path: Path) -> None:
    for temperature in (0.0, 0.3, 0.3):
        await judge_once(JudgeConfig(base_url=server.base_url, temperature=temperature, cache_dir=str(tmp_path)))
    assert [request["temperature"] for request in server.requests] == [0.0, 0.3]
    kept = [json.loads(path.read_text())["model"] for path in tmp_path.rglob("*.json")]
    assert sorted(kept) == [MODEL, f"{MODEL} at temperature 0.3"]


async def test_profiles_do_not_share_verdicts(server: JudgeServer, tmp_path: Path) -> None:
    for profile in ("graded", "longvt", "videosiah"):
        await judge_once(JudgeConfig(base_url=server.base_url, profile=profile, cache_dir=str(tmp_path)))
    assert len(server.requests) == 3
