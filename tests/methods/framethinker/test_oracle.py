"""Scripted experts: the five templates, true thoughts, thoughts that name the segment chosen."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import ParsedTurn
from verl_video_tools.methods.framethinker.grammar import last_two_numbers, parse_turn
from verl_video_tools.methods.framethinker.oracle import FrameThinkerOracle
from verl_video_tools.methods.toolkit.oracle import Script
from verl_video_tools.synthetic.questions import KINDS, Question, make_questions
from verl_video_tools.synthetic.world import VideoSpec, default_initial_frames, label_at, random_spec
from verl_video_tools.video import linspace_indices

WORLD = [(spec, question) for spec in map(random_spec, range(60)) for question in make_questions(spec, count=4, seed=0)]
EXPERT = FrameThinkerOracle(seed=1)


def parsed(script: Script) -> list[ParsedTurn]:
    turns = [parse_turn(text) for text in script.turns]
    assert all(turn.well_formed for turn in turns)
    assert [turn.answer is None for turn in turns] == [True] * (len(turns) - 1) + [False]
    return turns


def segments(script: Script) -> list[tuple[int, int]]:
    calls = [call for turn in parsed(script) for call in turn.calls if call.name == "choose_frames"]
    return [(call.arguments["start_frame"], call.arguments["end_frame"]) for call in calls]


def test_the_world_asks_every_kind_of_question() -> None:
    assert {question.kind for _, question in WORLD} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_perfect_expert_answers_right(kind: str) -> None:
    for spec, question in WORLD:
        if question.kind == kind:
            assert parsed(EXPERT.script(spec, question))[-1].answer == question.answer


def test_templates_of_each_kind() -> None:
    templates = Counter((question.kind, EXPERT.script(spec, question).template) for spec, question in WORLD)
    assert set(templates) == {
        ("direct", "A"),
        ("at_time", "C"),
        ("between_frames", "B"),
        ("between_frames", "D"),
        ("order", "B"),
        ("order", "E"),
        ("count", "B"),
        ("count", "E"),
    }


def test_shape_of_each_template() -> None:
    for spec, question in WORLD:
        script = EXPERT.script(spec, question)
        calls = [turn.calls[0] for turn in parsed(script)[:-1]]
        chosen = segments(script)
        match script.template:
            case "A":
                assert calls == []
            case "B":
                assert [call.name for call in calls] == ["choose_frames"]
            case "C":
                assert [call.name for call in calls] == ["get_frame_number", "choose_frames"]
                minutes, seconds = map(int, str(calls[0].arguments["time"]).split(":"))
                assert chosen[0][0] <= (60 * minutes + seconds) * spec.fps <= chosen[0][1]
            case "D":
                (outer_start, outer_end), (start, end) = chosen
                assert outer_start <= start < end <= outer_end
                assert (outer_start, outer_end) != (start, end)
            case "E":
                (_, first_end), (second_start, _) = chosen
                assert first_end <= second_start  # open intervals: a shared end is shown by neither


def test_thoughts_end_on_the_segment_chosen() -> None:
    for spec, question in WORLD:
        for turn in parsed(EXPERT.script(spec, question)):
            for call in turn.calls:
                if call.name == "choose_frames":
                    expected = (call.arguments["start_frame"], call.arguments["end_frame"])
                    assert last_two_numbers(turn.thought or "") == expected
                    assert expected[1] - expected[0] >= 9
                    assert expected[1] <= spec.num_frames


@pytest.mark.parametrize("imperfection", [0.0, 0.6])
def test_final_thoughts_tell_the_truth_about_frames_that_were_shown(imperfection: float) -> None:
    expert = FrameThinkerOracle(seed=2, imperfection=imperfection)
    told = 0
    for spec, question in WORLD:
        script = expert.script(spec, question)
        shown = set(default_initial_frames(spec.num_frames))
        for start, end in segments(script):
            shown |= set(linspace_indices(start + 1, end - 1, 8))
        for frame, label in re.findall(r"frame (\d+) (\w+ \w+)", parsed(script)[-1].thought or ""):
            told += 1
            assert int(frame) in shown
            assert label_at(spec, int(frame)) == label
    assert told > 50


def test_same_seed_same_script() -> None:
    for spec, question in WORLD[:40]:
        assert EXPERT.script(spec, question) == FrameThinkerOracle(seed=1).script(spec, question)
    other = FrameThinkerOracle(seed=9)
    assert any(EXPERT.script(spec, question) != other.script(spec, question) for spec, question in WORLD)


def right_share(expert: FrameThinkerOracle, world: list[tuple[VideoSpec, Question]]) -> float:
    right = [parsed(expert.script(spec, question))[-1].answer == question.answer for spec, question in world]
    return sum(right) / len(right)


def test_imperfect_expert_is_wrong_now_and_then() -> None:
    hard = [(spec, question) for spec, question in WORLD if question.kind != "direct"]
    assert right_share(FrameThinkerOracle(), hard) == 1.0
    assert 0.15 < right_share(FrameThinkerOracle(imperfection=1.0), hard) < 0.4  # four options
    assert 0.55 < right_share(FrameThinkerOracle(imperfection=0.5), hard) < 0.8


def test_imperfect_expert_stays_within_the_grammar_and_the_video() -> None:
    expert = FrameThinkerOracle(imperfection=1.0)
    templates = Counter(expert.script(spec, question).template for spec, question in WORLD)
    assert set(templates) == {"A", "B"}
    for spec, question in WORLD:
        for start, end in segments(expert.script(spec, question)):
            assert 0 <= start <= end - 9 <= spec.num_frames - 9


@pytest.mark.parametrize("field", ["imperfection", "refine_share", "split_share"])
def test_shares_are_probabilities(field: str) -> None:
    with pytest.raises(UsageError, match=field):
        FrameThinkerOracle(**{field: 1.5})
