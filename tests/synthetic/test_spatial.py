"""NeedleClips in space: cards that no initial frame shows, and questions that give nothing away."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from functools import cache

from verl_video_tools.data.synthetic_rows import questions_about
from verl_video_tools.synthetic.questions import LETTERS, Question
from verl_video_tools.synthetic.spatial import NUM_CARDS, SPATIAL_KINDS, card_at, spatial_questions, spatial_spec
from verl_video_tools.synthetic.world import LABELS, VideoSpec, default_initial_frames


@cache
def sample() -> tuple[tuple[VideoSpec, Question], ...]:
    specs = [spatial_spec(seed) for seed in range(300)]
    return tuple((spec, question) for spec in specs for question in spatial_questions(spec, 4, seed=1))


def test_videos_last_one_to_five_minutes_and_have_cards_that_no_initial_frame_shows() -> None:
    minutes = [spec.duration_seconds / 60 for spec, _ in sample()]
    assert 1.0 <= min(minutes) < 1.2 and 4.8 < max(minutes) <= 5.0
    for spec, _ in sample()[::4]:
        assert len(spec.events) == NUM_CARDS
        near = {frame + off for frame in default_initial_frames(spec.num_frames) for off in (-1, 0, 1)}
        assert all(card_at(spec, frame) is None for frame in near if 0 <= frame < spec.num_frames)
    assert len({spatial_spec(0), spatial_spec(0), spatial_spec(1)}) == 2
    assert all(VideoSpec.from_dict(json.loads(json.dumps(asdict(spec)))) == spec for spec, _ in sample()[::40])


def test_a_question_names_a_part_of_the_video_with_one_card_and_asks_for_the_thing_on_it() -> None:
    for spec, question in sample():
        ((start, end),) = question.evidence
        assert question.text.splitlines()[0] == f"What is on the card between frames {start} and {end}?"
        cards = {card for frame in range(start, end + 1) if (card := card_at(spec, frame)) is not None}
        assert [thing for _, thing in cards] == [question.options[question.answer]]
        assert len(set(question.options.values())) == 4
        assert question.kind in SPATIAL_KINDS


def test_eight_frames_of_that_part_always_show_the_card() -> None:
    for spec, question in sample():
        ((start, end),) = question.evidence
        shown = [start + round((end - start) * step / 7) for step in range(8)]
        assert any(card_at(spec, frame) for frame in shown)


def test_letters_and_things_come_evenly_and_things_do_not_depend_on_each_other() -> None:
    letters = Counter(question.answer for _, question in sample())
    expected = len(sample()) / 4
    assert sum((letters[letter] - expected) ** 2 / expected for letter in LETTERS) < 16.3  # 0.1 % point
    events = [event.label for spec, _ in sample()[::4] for event in spec.events]
    counts, expected = Counter(events), len(events) / len(LABELS)
    assert sum((counts[label] - expected) ** 2 / expected for label in LABELS) < 37.7  # 0.1 % point
    alike = [len({event.label for event in spec.events}) < NUM_CARDS for spec, _ in sample()[::4]]
    assert 0.08 < sum(alike) / len(alike) < 0.28  # 1 - 15/16 * 14/16 is 0.18


def test_questions_differ_and_fresh_ones_are_of_the_world() -> None:
    spec = spatial_spec(5)
    assert len({question.text for question in spatial_questions(spec, 500, seed=0)}) == 500
    assert questions_about(spec, 4, seed=2) == spatial_questions(spec, 4, seed=2)
