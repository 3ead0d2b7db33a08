"""The scripted expert of LongVT, on the synthetic world's questions in seconds: multiple-choice and open-ended."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import AnswerLabel, Sample
from verl_video_tools.data.sft import execute, export_sft
from verl_video_tools.data.synthetic_rows import load_rows, make_demo, make_row
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.longvt.method import LongVTOracle
from verl_video_tools.synthetic.questions import make_questions
from verl_video_tools.synthetic.seconds import WorldJudge, evidence_seconds, open_question, windows_in_seconds
from verl_video_tools.synthetic.world import label_at, random_spec

WORLD = [(spec, question) for spec in map(random_spec, range(40)) for question in make_questions(spec, count=4, seed=0)]
METHOD = LongVT(initial_frames=8, call_frames=32)
SETTINGS = {"initial_frames": 8, "call_frames": 32}


@pytest.fixture(scope="module")
def open_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("open")
    make_demo(folder, 3, 1, questions_per_video=4, agent_names=["longvt"], num_processes=1, open_ended=True)
    return folder / "train.parquet"


def test_open_questions_name_a_window_and_no_option() -> None:
    for spec, question in WORLD:
        variant = open_question(spec, question)
        assert variant.truth == question.options[question.answer]
        assert variant.question_type == ("numeric" if question.kind == "count" else "open")
        assert "\n" not in variant.text and "frames" not in variant.text and ":" not in variant.text
        start, end = evidence_seconds(spec, question)
        assert 0.0 <= start < end <= spec.num_frames / spec.fps
        named = [f"{start:.1f}"] if question.kind == "direct" else [f"{start:.1f}", f"{end:.1f}"]
        assert re.findall(r"(\d+\.\d)s", variant.text) == named


@pytest.mark.parametrize("open_ended", [True, False])
def test_perfect_expert_is_right_and_crops_the_evidence(open_ended: bool) -> None:
    expert = LongVTOracle(method=METHOD, answers_in_words=open_ended)
    templates = set()
    for spec, question in WORLD:
        script = expert.script(spec, question)
        templates.add(script.template)
        *looks, last = [METHOD.parse(turn) for turn in script.turns]
        assert all(turn.well_formed for turn in (*looks, last))
        assert last.answer == (question.options[question.answer] if open_ended else question.answer)
        for look in looks:
            start, end = evidence_seconds(spec, question)
            assert look.calls[0].arguments == {"start_time": pytest.approx(start), "end_time": pytest.approx(end)}
        for seconds, label in re.findall(r"(\d+\.\d)s (\w+ \w+)", last.thought or ""):
            assert label_at(spec, round(float(seconds) * spec.fps)) == label
    assert templates == {"A", "B"}


def test_imperfect_expert_is_wrong_now_and_then() -> None:
    expert = LongVTOracle(method=METHOD, answers_in_words=True, imperfection=1.0)
    answers = [METHOD.parse(expert.script(spec, question).turns[-1]).answer for spec, question in WORLD]
    truths = [question.options[question.answer] for _, question in WORLD]
    assert 0.15 < sum(map(str.__eq__, truths, map(str, answers))) / len(WORLD) < 0.5
    with pytest.raises(UsageError, match="imperfection"):
        LongVTOracle(method=METHOD, answers_in_words=True, imperfection=2)


async def test_the_worlds_judge() -> None:
    judge = WorldJudge()
    assert await judge.judge("?", "red circle", " Red  circle ") is AnswerLabel.CORRECT
    assert await judge.judge("?", "red circle", "blue circle") is AnswerLabel.INCORRECT


def test_multiple_choice_in_seconds() -> None:
    for spec, question in WORLD:
        assert windows_in_seconds(spec, question).text.splitlines() == [
            open_question(spec, question).text,
            *question.text.splitlines()[1:],
        ]
        row = make_row(spec, question, Path("v.mp4"), 0, "train", "longvt")
        assert row["extra_info"]["question"] == windows_in_seconds(spec, question).text
        assert row["extra_info"]["video_segment"] == list(evidence_seconds(spec, question))
        assert (
            make_row(spec, question, Path("v.mp4"), 0, "train", "framethinker")["prompt"][0]["content"] == question.text
        )


@pytest.mark.slow
def test_open_ended_rows(open_rows: Path) -> None:
    for row in load_rows(open_rows):
        sample = Sample.from_row(row)
        assert row["agent_name"] == "longvt" and sample.options == ()
        assert sample.question_type in ("open", "numeric")
        assert sample.video_segment_seconds is not None
        assert row["prompt"][0]["content"] == sample.question


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [None, 6])
async def test_rollouts_are_executed_and_earn_everything(open_rows: Path, tmp_path: Path, fresh: int | None) -> None:
    import asyncio

    report = await asyncio.to_thread(
        export_sft, open_rows, tmp_path / "sft.parquet", settings=SETTINGS, questions_per_video=fresh
    )
    assert report.dropped.total() == 0
    rows: list[dict[str, Any]] = pq.read_table(tmp_path / "sft.parquet").to_pylist()
    assert len(rows) == 3 * (fresh or 4)
    for row in rows:
        sample = Sample.from_row(row)
        reward = await METHOD.score(await execute(METHOD, sample, row["turns"]), sample, WorldJudge())
        cropped = row["template"] == "B"
        assert reward == {"score": 2.0 + cropped, "accuracy": 1.0, "format": 1.0, "temporal_iou": float(cropped)}


def test_wrong_rollouts_are_dropped_although_format_and_place_are_paid(open_rows: Path, tmp_path: Path) -> None:
    report = export_sft(open_rows, tmp_path / "sft.parquet", settings=SETTINGS, imperfection=0.6)
    assert report.dropped["wrong answer"] > 0
