"""Published extractors read what the original functions read (`extractor_outputs`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data.extractor_outputs import NUM_OUTPUTS, choice_outputs, open_outputs, time_outputs
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import AnswerLabel, Sample
from verl_video_tools.data.extractors import EXTRACTORS, get_extractor
from verl_video_tools.data.extractors.open import OpenAnswerRule, open_answer_is_right
from verl_video_tools.data.extractors.times import published_segment

READINGS = json.loads((Path(__file__).parent / "extractor_readings.json").read_text(encoding="utf-8"))
NUM_OPTIONS = {"lmms-eval-2025/videommmu": 5}
"""Where it is not four."""
OF_LETTERS = [name for name in READINGS if name not in ("lmms-eval/charades_sta", "open")]


@pytest.mark.parametrize("name", OF_LETTERS)
def test_letters_are_those_of_the_original(name: str) -> None:
    extractor, outputs = get_extractor(name), choice_outputs(NUM_OPTIONS.get(name, 4))
    for output, expected in zip(outputs, READINGS[name], strict=True):
        reading = extractor.read(output.answer, output.sample)
        assert reading is not None and (reading.text or "-") == expected, output.answer
        assert reading.is_correct == (reading.text == output.sample.ground_truth)
    assert 0 < READINGS[name].count("-") < NUM_OUTPUTS


def test_segments_are_those_of_the_original() -> None:
    extractor = get_extractor("lmms-eval/charades_sta")
    for output, expected in zip(time_outputs(), READINGS["lmms-eval/charades_sta"], strict=True):
        reading = extractor.read(output.answer, output.sample)
        assert reading is not None and reading.text == expected, output.answer
    assert READINGS["lmms-eval/charades_sta"].count(None) < NUM_OUTPUTS / 3


def test_reversed_ends_change_places() -> None:
    assert published_segment("It happens in 7.5 - 2 seconds.") == (2.0, 7.5)
    long_line = f"starts {'9' * 20_000} x"  # a policy that writes digits for ever
    assert published_segment(long_line) is None


def test_open_answers_are_judged_as_by_the_original() -> None:
    extractor = get_extractor("lmms-eval-2025/videommmu")
    for output, expected in zip(open_outputs(), READINGS["open"], strict=True):
        reading = extractor.read(output.answer, output.sample)
        assert reading is not None and reading.is_correct == (expected == "1"), output.answer
    assert 50 < READINGS["open"].count("1") < NUM_OUTPUTS - 50


@pytest.mark.parametrize(
    ("answer", "truth", "is_right"),
    [
        ("The total is 1,200.004", "1200", True),
        ("We get x = 12.5", "12.50", True),
        ("It is Bach, I think", "bach", True),
        ("It is c", "C", True),
        ("It is cat", "C", False),
        ("['2', 'two'", "['2', 'two'", True),  # a truth that is half a list is a text like any other
        ("two", "['2', 'two'", False),
        ("", "5", False),
    ],
)
async def test_the_rule_for_open_questions(answer: str, truth: str, is_right: bool) -> None:
    assert open_answer_is_right(answer, truth) is is_right
    label = await OpenAnswerRule().judge("What is it?", truth, answer)
    assert (label is AnswerLabel.CORRECT) is is_right


@pytest.mark.parametrize(("answer", "reading"), [("B", "B"), ("b", None), ("B.", None), ("E", None), ("", None)])
def test_frame_thinkers_script_takes_a_bare_letter(answer: str, reading: str | None) -> None:
    sample = Sample("?", "B", "v.mp4", "mc", ("a", "b", "c", "d"))
    found = get_extractor("framethinker/exact").read(answer, sample)
    assert found is not None and (found.text, found.is_correct) == (reading, reading == "B")


@pytest.mark.parametrize(
    ("answer", "reading"),
    [("B", "B"), (" B ", "B"), (r"\boxed{A} or \boxed{B}", "B"), ("A. a\nB. b", "B"), ("(B)", None), ("", None)],
)
def test_video_zoomers_letters(answer: str, reading: str | None) -> None:
    sample = Sample("?", "B", "v.mp4", "mc", ("a", "b", "c", "d"))
    found = get_extractor("videozoomer/letter").read(answer, sample)
    assert found is not None and (found.text, found.is_correct) == (reading, reading == "B")


def test_every_extractor_of_lmms_eval_has_been_compared() -> None:
    assert {name for name in EXTRACTORS if name.startswith("lmms-eval")} == READINGS.keys() - {"open"}


def test_questions_of_another_type_are_left_alone() -> None:
    segment = Sample("When?", "[1, 2]", "v.mp4", "segment")
    assert get_extractor("lmms-eval-2025/videomme").read("B", segment) is None
    choice = choice_outputs(4)[0].sample
    assert get_extractor("lmms-eval/charades_sta").read("1 - 2", choice) is None


def test_an_unknown_extractor() -> None:
    with pytest.raises(UsageError, match="there is no extractor 'lmms'"):
        get_extractor("lmms")
    with pytest.raises(UsageError, match="must be an Extractor"):
        get_extractor("json:dumps")
