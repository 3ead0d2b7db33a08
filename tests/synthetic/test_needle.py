"""NeedleClips: the videos and their questions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from functools import cache

import pytest

from verl_video_tools.data.synthetic_rows import questions_about
from verl_video_tools.synthetic.needle import NEEDLE_KINDS, needle_questions, needle_spec
from verl_video_tools.synthetic.questions import LETTERS, Question
from verl_video_tools.synthetic.world import VideoSpec, default_initial_frames, label_at


@cache
def sample() -> tuple[tuple[VideoSpec, Question], ...]:
    specs = [needle_spec(seed) for seed in range(150)]
    return tuple((spec, question) for spec in specs for question in needle_questions(spec, 8, seed=1))


def test_videos_last_one_to_ten_minutes() -> None:
    minutes = [spec.duration_seconds / 60 for spec, _ in sample()]
    assert 1.0 <= min(minutes) < 1.5 and 9.5 < max(minutes) <= 10.0
    assert len({needle_spec(0), needle_spec(0), needle_spec(1)}) == 2
    assert all(VideoSpec.from_dict(json.loads(json.dumps(asdict(spec)))) == spec for spec, _ in sample()[::8])


def test_kinds_come_in_equal_shares_and_letters_evenly() -> None:
    assert Counter(question.kind for _, question in sample()) == dict.fromkeys(NEEDLE_KINDS, 300)
    letters = Counter(question.answer for _, question in sample())
    expected = len(sample()) / 4
    assert sum((letters[letter] - expected) ** 2 / expected for letter in LETTERS) < 16.3  # 0.1 % point


def test_clues_lie_on_neighbouring_initial_frames_and_one_needle_between() -> None:
    for spec, question in sample():
        if question.kind == "between_things":
            ((start, end),) = question.evidence
            looks = default_initial_frames(spec.num_frames)
            assert looks.index(end) == looks.index(start) + 1
            clues = [label_at(spec, start), label_at(spec, end)]
            assert question.text.splitlines()[0] == f"What is shown between the {clues[0]} and the {clues[1]}?"
            inside = {label_at(spec, frame) for frame in range(start, end + 1)} - {None}
            assert inside == {*clues, question.options[question.answer]}


@pytest.mark.slow
def test_too_many_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="ask for fewer"):
        needle_questions(needle_spec(0), 12_000, seed=0)


def test_fresh_questions_about_a_needle_video_are_of_its_world() -> None:
    spec = needle_spec(5)
    assert questions_about(spec, 4, seed=2) == needle_questions(spec, 4, seed=2)
