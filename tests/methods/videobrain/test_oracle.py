"""The scripted expert of VideoBrain, on the synthetic world's questions by frame numbers and by search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Sample
from verl_video_tools.data.sft import execute, scripted_oracle
from verl_video_tools.data.synthetic_rows import make_row
from verl_video_tools.methods.videobrain import ToolName, VideoBrain
from verl_video_tools.methods.videobrain.oracle import VideoBrainOracle, search_words, words_by_frames
from verl_video_tools.synthetic.questions import Question, make_questions
from verl_video_tools.synthetic.world import VideoSpec, default_initial_frames, label_at, random_spec, render

WORLD = [(spec, question) for spec in map(random_spec, range(40)) for question in make_questions(spec, count=4, seed=0)]
METHOD = VideoBrain(initial_frames=8)
EXPERT = VideoBrainOracle(method=METHOD)


class TruthRetriever:
    """Finds what the video's description says, as a perfect encoder would."""

    def __init__(self, spec: VideoSpec) -> None:
        self._spec = spec

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        found = sorted(candidates, key=lambda frame: text not in (label_at(self._spec, frame) or ""))
        return found[:num_frames]


def test_questions_name_frames_or_have_to_be_searched() -> None:
    asked = [(spec, question, words_by_frames(spec, question)) for spec, question in WORLD]
    searched = [(spec, question, variant) for spec, question, variant in asked if search_words(spec, question)]
    assert len(asked) / 4 < len(searched) < len(asked) / 2
    for spec, question, variant in asked:
        assert ":" not in variant.text
        assert variant.text.splitlines()[1:] == [f"{letter}. {text}" for letter, text in variant.options.items()]
        assert variant.options[variant.answer] == question.options[question.answer]
        assert words_by_frames(spec, question) == variant, "the same every time"
    for spec, question, variant in searched:
        shape = search_words(spec, question)
        assert variant.text.splitlines()[0] == f"Which {shape} is shown?"
        labels = {event.label for event in spec.events if shape in event.label}
        assert labels & set(variant.options.values()) == {variant.options[variant.answer]}
        start, end = question.evidence[0]
        frames = [frame for frame in range(spec.num_frames) if shape in (label_at(spec, frame) or "")]
        assert frames == list(range(frames[0], frames[-1] + 1)), "shown once"
        assert max(start, frames[0]) <= min(end, frames[-1]), "where the evidence is"


def test_a_perfect_expert_is_right() -> None:
    templates = Counter[str]()
    for spec, question in WORLD:
        script = EXPERT.script(spec, question)
        templates[script.template] += 1
        *looks, last = [METHOD.parse(turn) for turn in script.turns]
        assert all(turn.well_formed for turn in (*looks, last))
        assert last.answer == words_by_frames(spec, question).answer
        assert (script.template == "direct") is (question.kind == "direct") is (not looks)
        assert (script.template == "clip") is (search_words(spec, question) is not None)
    assert set(templates) == {"direct", "uniform", "clip"}


def test_initial_frames_that_leave_the_frame_out_is_no_answer() -> None:
    spec, question = next((spec, question) for spec, question in WORLD if question.kind == "direct")
    script = VideoBrainOracle(method=VideoBrain(initial_frames=3)).script(spec, question)
    assert script.template == "uniform"
    frame = question.evidence[0][0]
    assert METHOD.parse(script.turns[0]).calls[0].arguments == {"start_frame": frame, "end_frame": frame + 8}
    assert METHOD.parse(script.turns[-1]).answer == question.answer


def test_an_imperfect_expert_guesses_and_searches_nothing() -> None:
    expert = VideoBrainOracle(method=METHOD, imperfection=1.0)
    scripts = [expert.script(spec, question) for spec, question in WORLD]
    truths = [words_by_frames(spec, question).answer for spec, question in WORLD]
    right = [METHOD.parse(script.turns[-1]).answer == truth for script, truth in zip(scripts, truths, strict=True)]
    assert {script.template for script in scripts} == {"direct", "uniform"}
    assert 0.15 < sum(right) / len(right) < 0.6
    with pytest.raises(UsageError, match="imperfection"):
        VideoBrainOracle(method=METHOD, imperfection=2)


@pytest.mark.parametrize(
    ("tool_name", "templates"), [("uniform_sample", {"direct", "uniform"}), ("clip_sample", {"direct", "clip"})]
)
def test_the_expert_calls_the_tools_that_there_are(tool_name: ToolName, templates: set[str]) -> None:
    method, scripts = replace(METHOD, tool_names=(tool_name,)), []
    for imperfection in (0.0, 0.5):
        expert = VideoBrainOracle(method=method, imperfection=imperfection)
        scripts += [expert.script(spec, question) for spec, question in WORLD]
    assert {script.template for script in scripts} == templates
    called = {call.name for script in scripts for turn in script.turns for call in method.parse(turn).calls}
    assert called == {tool_name}


def test_rows() -> None:
    for spec, question in WORLD[:40]:
        row = make_row(spec, question, Path("v.mp4"), 0, "train", "videobrain")
        variant = words_by_frames(spec, question)
        assert row["extra_info"]["question"] == variant.text
        assert row["reward_model"]["ground_truth"] == variant.answer
        assert row["extra_info"]["options"] == list(variant.options.values())
        frame = question.evidence[0][0]
        is_seen = question.kind == "direct" and frame in default_initial_frames(spec.num_frames)
        assert row["extra_info"]["classification"] == ("direct" if is_seen else "active")


def one_of_each() -> list[tuple[VideoSpec, Question]]:
    """A question for each template, all about one video."""
    for spec, _ in WORLD:
        questions = make_questions(spec, count=8, seed=0)
        by_template = {EXPERT.script(spec, question).template: question for question in questions}
        if len(by_template) == 3:
            return [(spec, question) for question in by_template.values()]
    raise AssertionError("no video has all three")


async def test_executed_rollouts_earn_everything(tmp_path: Path) -> None:
    rows = one_of_each()
    render(rows[0][0], tmp_path / "video.mp4")
    for spec, question in rows:
        script = scripted_oracle(METHOD).script(spec, question)
        sample = Sample.from_row(make_row(spec, question, tmp_path / "video.mp4", 0, "train", "videobrain"))
        trajectory = await execute(METHOD, sample, script.turns, TruthRetriever(spec))
        assert (await METHOD.score(trajectory, sample))["score"] == pytest.approx(1.55)
        if script.template == "clip":
            thing = sample.options["ABCD".index(sample.ground_truth)]
            assert [label_at(spec, frame.index) for frame in trajectory.calls()[0].frames] == [thing] * 4
