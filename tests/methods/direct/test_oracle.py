"""The expert without tools answers from its one look, and says so truthfully."""

from __future__ import annotations

import re

from verl_video_tools.methods.direct import Direct
from verl_video_tools.methods.direct.method import DirectOracle
from verl_video_tools.synthetic.questions import make_questions
from verl_video_tools.synthetic.world import label_at, random_spec

WORLD = [(spec, question) for spec in map(random_spec, range(60)) for question in make_questions(spec, 4, 0)]
METHOD = Direct(initial_frames=8)


def test_what_the_initial_frames_show_is_answered_and_the_rest_is_guessed() -> None:
    expert = DirectOracle(method=METHOD)
    right = {True: 0, False: 0}
    asked = {True: 0, False: 0}
    for spec, question in WORLD:
        (turn,) = expert.script(spec, question).turns
        parsed = METHOD.parse(turn)
        is_direct = question.kind == "direct"
        asked[is_direct] += 1
        right[is_direct] += parsed.answer == question.answer
        for frame, label in re.findall(r"frame (\d+) (\w+ \w+)", parsed.thought or ""):
            assert label_at(spec, int(frame)) == label
    assert right[True] == asked[True] > 10
    assert 0.1 < right[False] / asked[False] < 0.4  # four options


def test_answers_in_words_name_the_option() -> None:
    for spec, question in WORLD[:40]:
        letter = METHOD.parse(DirectOracle(method=METHOD).script(spec, question).turns[0]).answer
        words = METHOD.parse(DirectOracle(method=METHOD, answers_in_words=True).script(spec, question).turns[0]).answer
        assert letter is not None and words == question.options[letter]
