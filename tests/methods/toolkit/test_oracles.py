"""What holds for the experts of all methods."""

from __future__ import annotations

import pytest

from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.methods import get_method
from verl_video_tools.methods.toolkit.oracle import synthetic_fields
from verl_video_tools.synthetic.needle import needle_questions, needle_spec

SPECS = [needle_spec(seed) for seed in range(6)]
METHODS = ("framemind", "framethinker", "longvt", "videobrain", "videozoomer")


@pytest.mark.parametrize("method", METHODS)
def test_looks_name_the_place_asked_for_and_no_other_does(method: str) -> None:
    expert = scripted_oracle(get_method(method), seed=2)
    places = set()
    for spec in SPECS:
        for question in needle_questions(spec, 8, seed=0):
            *looks, _ = expert.script(spec, question).turns
            for look in looks:
                thought = look.split(">", 1)[1].split("<", 1)[0]
                place = thought.split()[0]
                if question.kind == "order":
                    assert f" {place} between " in question.text.splitlines()[0]
                    places.add(place)
                else:
                    assert place not in ("first", "last")
    assert places == {"first", "last"}


@pytest.mark.parametrize("method", METHODS)
def test_what_the_initial_frames_show_is_read_in_whatever_haste(method: str) -> None:
    """Else a cold start on rollouts without tool calls would teach not to believe the pictures."""
    fields = synthetic_fields(type(get_method(method)))
    careless = {"imperfection": 1.0, "skip_rate": 1.0, "answers_in_words": True}
    expert = scripted_oracle(get_method(method, **fields), seed=2, **careless)
    answered = 0
    for spec in SPECS:
        for question in needle_questions(spec, 8, seed=0):
            (turn,) = expert.script(spec, question).turns
            if question.kind == "direct":
                assert turn.count(question.options[question.answer]) == 3  # seen, concluded, answered
                answered += 1
            else:
                assert "nothing" in turn
    assert answered >= len(SPECS)
