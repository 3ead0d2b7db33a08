"""Every expert writes down, while it looks, which of several things a question about their order asks for."""

from __future__ import annotations

import pytest

from verl_video_tools.data.sft import scripted_expert
from verl_video_tools.demo.needle import needle_questions, needle_spec
from verl_video_tools.methods import get_method

SPECS = [needle_spec(seed) for seed in range(6)]
METHODS = ("framemind", "framethinker", "longvt", "videobrain", "videozoomer")


@pytest.mark.parametrize("method", METHODS)
def test_looks_name_the_place_asked_for_and_no_other_does(method: str) -> None:
    expert = scripted_expert(get_method(method), seed=2)
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
