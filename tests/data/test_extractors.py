"""Published extractors read what the original functions read (`extractor_outputs`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data.extractor_outputs import NUM_OUTPUTS, choice_outputs
from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.extractors import EXTRACTORS, get_extractor

READINGS = json.loads((Path(__file__).parent / "extractor_readings.json").read_text(encoding="utf-8"))
OPTIONS = ("a", "b", "c", "d")


@pytest.mark.parametrize("name", READINGS)
def test_letters_are_those_of_the_original(name: str) -> None:
    for output, expected in zip(choice_outputs(4), READINGS[name], strict=True):
        assert (get_extractor(name).read(output.answer, output.options) or "-") == expected, output.answer
    assert 0 < READINGS[name].count("-") < NUM_OUTPUTS


@pytest.mark.parametrize(("answer", "letter"), [("B", "B"), ("b", None), ("B.", None), ("E", None), ("", None)])
def test_frame_thinkers_script_takes_a_bare_letter(answer: str, letter: str | None) -> None:
    assert get_extractor("framethinker/exact").read(answer, OPTIONS) == letter


@pytest.mark.parametrize(
    ("answer", "letter"),
    [("B", "B"), (" B ", "B"), (r"\boxed{A} or \boxed{B}", "B"), ("A. a\nB. b", "B"), ("(B)", None), ("", None)],
)
def test_video_zoomers_letters(answer: str, letter: str | None) -> None:
    assert get_extractor("videozoomer/letter").read(answer, OPTIONS) == letter


def test_every_extractor_of_lmms_eval_has_been_compared() -> None:
    assert {name for name in EXTRACTORS if name.startswith("lmms-eval")} == READINGS.keys()


def test_an_unknown_extractor() -> None:
    with pytest.raises(UsageError, match="there is no extractor 'lmms'"):
        get_extractor("lmms")
    with pytest.raises(UsageError, match="must be an Extractor"):
        get_extractor("json:dumps")
