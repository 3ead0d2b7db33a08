"""Questions are true, varied, and mostly cannot be answered from the initial frames."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from functools import cache

import numpy as np
import pytest

from verl_video_tools.synthetic.questions import KINDS, LETTERS, Question, make_questions
from verl_video_tools.synthetic.world import LABELS, Event, VideoSpec, default_initial_frames, label_at, random_spec

Pair = tuple[VideoSpec, Question]


@cache
def sample() -> tuple[Pair, ...]:
    specs = [random_spec(seed) for seed in range(300)]
    return tuple((spec, question) for spec in specs for question in make_questions(spec, 4, seed=1))


def runs_seen(spec: VideoSpec, frames: list[int]) -> list[str]:
    """Things in order of appearance when looking at `frames`; two in a row that are alike count once."""
    seen = [label_at(spec, frame) for frame in frames]
    return [label for before, label in zip([None, *seen], seen, strict=False) if label and label != before]


def looked_at(question: Question, num_frames: int = 8) -> list[int]:
    """The frames that a zoom into the evidence shows: spread over the open interval."""
    (first, last) = question.evidence[0]
    if question.kind == "direct":
        return [first]
    return sorted({int(index) for index in np.linspace(first + 1, last - 1, num_frames)})


def oracle(spec: VideoSpec, question: Question, runs: list[str]) -> str | None:
    """The letter that follows from what was seen and from the words of the question."""
    sentence = question.text.splitlines()[0]
    if question.kind == "count":
        thing = next(label for label in LABELS if f" {label} " in sentence)
        wanted = str(runs.count(thing))
    elif question.kind == "order":
        wanted = runs[0] if " first " in sentence else runs[-1]
    else:
        wanted = runs[0] if runs else ""
    return next((letter for letter, text in question.options.items() if text == wanted), None)


def test_an_oracle_that_looks_at_the_evidence_answers_every_question() -> None:
    for spec, question in sample():
        assert oracle(spec, question, runs_seen(spec, looked_at(question))) == question.answer, (spec, question)


def test_the_initial_frames_show_nothing_of_what_hidden_questions_ask_about() -> None:
    for spec, question in sample():
        first, last = question.evidence[0]
        shown = [label_at(spec, frame) for frame in default_initial_frames(spec.num_frames) if first <= frame <= last]
        if question.kind == "direct":
            assert shown == [question.options[question.answer]]
        else:
            assert set(shown) <= {None}, (spec, question)


def test_answering_from_the_initial_frames_alone_does_poorly_on_hidden_questions() -> None:
    """Any thing of the menu that the initial frames show is a trap; guessing it is never right unless shown twice."""
    hidden = [
        (spec, question) for spec, question in sample() if question.kind in ("at_time", "between_frames", "order")
    ]
    lured = [
        question.options[question.answer]
        in {label_at(spec, frame) for frame in default_initial_frames(spec.num_frames)}
        for spec, question in hidden
    ]
    assert np.mean(lured) < 0.02


def test_share_of_hidden_and_direct_questions() -> None:
    kinds = Counter(question.kind for _, question in sample())
    assert set(kinds) == set(KINDS)
    direct = kinds["direct"] / len(sample())
    assert 0.10 <= direct <= 0.20


def test_truth_is_spread_evenly_over_letters() -> None:
    answers = Counter(question.answer for _, question in sample())
    assert set(answers) == set(LETTERS)
    expected = len(sample()) / 4
    chi_squared = sum((count - expected) ** 2 / expected for count in answers.values())
    assert chi_squared < 16.3  # 0.1 % point, 3 degrees of freedom


def test_counts_vary() -> None:
    truths = Counter(question.options[question.answer] for _, question in sample() if question.kind == "count")
    assert set(truths) >= {"0", "1", "2"}
    assert max(truths.values()) < 0.6 * truths.total()


def test_text_lists_four_different_options_with_the_truth_among_them() -> None:
    for _, question in sample():
        lines = question.text.splitlines()
        assert lines[1:] == [f"{letter}. {text}" for letter, text in question.options.items()]
        assert list(question.options) == list(LETTERS)
        assert len(set(question.options.values())) == 4


def test_at_time_names_a_clock_whose_frame_starts_the_evidence() -> None:
    for spec, question in sample():
        if question.kind != "at_time":
            assert question.clock is None
            continue
        assert question.clock is not None and question.clock in question.text
        minutes, seconds = question.clock.split(":")
        frame = (60 * int(minutes) + int(seconds)) * spec.fps
        assert question.evidence[0][0] == frame
        assert label_at(spec, frame) == question.options[question.answer]


def test_named_windows_stand_in_the_text_and_are_wide_enough_for_eight_frames() -> None:
    for spec, question in sample():
        first, last = question.evidence[0]
        if question.kind in ("between_frames", "order", "count"):
            assert f"between frames {first} and {last}?" in question.text
        if question.kind != "direct":
            assert first >= 0 and last < spec.num_frames
            assert 9 <= last - first <= 100
            assert len(looked_at(question)) == 8


def test_questions_of_a_video_differ_and_depend_on_the_seed_only() -> None:
    spec = random_spec(11)
    questions = make_questions(spec, 6, seed=3)
    assert questions == make_questions(spec, 6, seed=3)
    assert questions != make_questions(spec, 6, seed=4)
    assert len({question.text for question in questions}) == 6


def test_too_many_questions_are_refused() -> None:
    spec = VideoSpec(0, 5, 300, (Event(50, 65, LABELS[0]),))
    assert len(make_questions(spec, 20, seed=0)) == 20
    with pytest.raises(ValueError, match="ask for fewer"):
        make_questions(spec, 1000, seed=0)


def test_question_survives_json() -> None:
    for _, question in sample()[:50]:
        assert Question.from_dict(json.loads(json.dumps(asdict(question)))) == question
