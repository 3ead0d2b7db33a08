"""Truths of rows have one form, whatever form their data set gives them."""

from __future__ import annotations

from typing import Any

import pytest

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.numbers import canonical_number
from verl_video_tools.core.types import Sample, StopReason, Trajectory, Turn, VideoInfo, default_question_type
from verl_video_tools.methods import METHOD_NAMES, get_method

ANIMALS = ("a cat", "a dog", "a horse")
CLOSED = [name for name in METHOD_NAMES if name != "direct"]
VIDEO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=96, height=64)


def sample_of(truth: Any, **extra: Any) -> Sample:
    extra_info = {"question": "Which?", "video_path": "v.mp4", "classification": "direct", **extra}
    return Sample.from_row({"extra_info": extra_info, "reward_model": {"ground_truth": truth}})


@pytest.mark.parametrize("given", [{"question_type": "mc"}, {}])
def test_letters_of_rows(given: dict[str, str]) -> None:
    for truth in ("B", "(B)", "B.", "b", " B ", "(b)", "B. a dog", "a dog", "A dog.", "<answer>B</answer>"):
        sample = sample_of(truth, options=list(ANIMALS), **given)
        assert (sample.ground_truth, sample.question_type) == ("B", "mc"), truth


@pytest.mark.parametrize(
    ("truth", "options", "expected"),
    [
        ("B", (), "mc"),
        ("(B)", (), "mc"),
        (" b. ", (), "mc"),
        ("B. dog", (), "open"),
        ("dog", (), "open"),
        ("\u732b", (), "open"),
        ("", (), "open"),
        ("5", (), "open"),
        ("dog", ("cat", "dog"), "mc"),
        ("a foul", ("cat", "dog"), "mc"),
    ],
)
def test_the_type_of_a_question_that_names_none(truth: str, options: tuple[str, ...], expected: str) -> None:
    assert default_question_type(truth, options) == expected


NUMBERS = [
    ("5", "5"),
    ("5.0", "5"),
    (" 5. ", "5"),
    ("+5", "5"),
    ("005", "5"),
    ("1,000", "1000"),
    ("-1,234,567.50", "-1234567.5"),
    (".50", "0.5"),
    ("-0.0", "0"),
    ("100", "100"),
    ("\u22125", "-5"),
    ("\uff15", "5"),
    ("1,00", None),
    ("1/2", None),
    ("5 %", None),
    ("0:34", None),
    ("five", None),
    ("", None),
    ("1e3", None),
    ("9" * 60, None),
]


def test_numbers_of_rows() -> None:
    for truth, number in NUMBERS:
        assert canonical_number(truth) == number, truth
        if truth:
            assert sample_of(truth, question_type="numeric").ground_truth == (number or truth)


def test_truths_of_open_questions_stay() -> None:
    assert sample_of(" B. a dog ", question_type="open").ground_truth == " B. a dog "
    assert sample_of(5, question_type="numeric").ground_truth == "5"


@pytest.mark.parametrize("truth", ["(B)", "B.", "b", " B ", "a dog", 5.0, "1,000"])
async def test_exact_grading_pays_every_form(truth: Any) -> None:
    method = get_method("framethinker", ccv=False)
    kind = "mc" if isinstance(truth, str) and truth != "1,000" else "numeric"
    sample = sample_of(truth, question_type=kind, options=list(ANIMALS) if kind == "mc" else None)
    answer = {"5.0": "5", "1,000": "1000"}.get(str(truth), "B")
    turns = [Turn("", answer=answer)]
    rollout = Trajectory("framethinker", "Which?", VIDEO, turns=turns, stop_reason=StopReason.ANSWER, answer=answer)
    assert (await method.score(rollout, sample))["accuracy"] == 1.0


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_truth_that_is_no_option_is_refused(name: str) -> None:
    for truth in ("a foul", "D", "B. a cat", " "):
        with pytest.raises(UsageError, match=r"letter or the text of an option|is empty"):
            get_method(name).check_gradable(sample_of(truth, question_type="mc", options=list(ANIMALS)), None)
            pytest.fail(f"{truth!r} is taken")


def test_what_only_some_methods_can_pay() -> None:
    several = sample_of("12 km", question_type="numeric")
    get_method("longvt").check_gradable(several, None)
    get_method("framethinker", answer_grading="choice").check_gradable(several, None)
    with pytest.raises(UsageError, match=r"answer_grading=exact compares the answer's first word .* '12 km'"):
        get_method("framethinker").check_gradable(several, None)

    for given in (None, "", "c", "activ"):
        row = sample_of("B", options=list(ANIMALS), classification=given)
        with pytest.raises(UsageError, match=r"extra_info.classification .* is no class, so behaviour earns nothing"):
            get_method("videobrain").check_gradable(row, None)
        get_method("videobrain").check_sample(row, None)
        zeros = dict.fromkeys(("direct_behavior", "adaptive_behavior", "active_behavior"), (0, 0, 0, 0))
        get_method("videobrain", **zeros).check_gradable(row, None)
        get_method("longvt").check_gradable(row, None)


def test_fields_that_cannot_be_read_are_named_first() -> None:
    with pytest.raises(RowError, match="options must be a list of texts"):
        sample_of("B", options='["a lamp"')
