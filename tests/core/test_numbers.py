"""Numeric answers: what counts as the same number, and that nothing computes for long."""

import threading
from typing import Any

import math_verify
import pytest

from verl_video_tools.core import numbers
from verl_video_tools.core.numbers import grade_number, is_number

SAME = [
    ("5", "5"),
    (" 5. ", "5"),
    ("5.0", "5"),
    ("(5)", "5"),
    ("The answer is 5.", "5"),
    ("answer: 5", "5"),
    ("5 dogs", "5"),
    ("5 m^2", "5"),
    ("+5", "5"),
    ("x = +5 degrees", "5"),
    ("3 +2", "5"),
    ("答案是5", "5"),
    ("共5个人", "5"),
    ("5", "5 dogs"),
    ("5 or 5.0", "5"),
    ("0.5", "1/2"),
    (r"\frac{1}{2}", "0.5"),
    (r"$\frac{1}{2}$", "0.5"),
    (r"\boxed{5}", "5"),
    (r"The answer is $\boxed{5}$.", "5"),
    (r"Therefore, there are \boxed{5} dogs.", "5"),
    (r"There are 2 and 3 of them, not 4. So \boxed{5}", "5"),
    ("It is a long way to it. " * 20 + r"\boxed{5}", "5"),
    (r"\boxed{5 \text{ m}}", "5"),
    (r"\boxed{8.4\text{ kN}}", "8.4"),
    (r"\boxed{10 \, m/s^2}", "10"),
    (r"\boxed{50\%}", "50%"),
    (r"\boxed{1.5 \times 10^{3}}", "1500"),
    (r"\boxed{3\frac{1}{2}}", "3.5"),
    (r"5", r"\boxed{5}"),
    (r"The answer is \(5\).", "5"),
    (r"The ratio is $\frac{1}{2}$.", "0.5"),
    (r"The ratio is \frac{1}{2} to one", "0.5"),
    (r"$5 \text{ km}$", "5"),
    ("50%", "0.5"),
    (r"50\%", "1/2"),
    ("1,000", "1000"),
    ("1024", "$2^{10}$"),
    (r"$\sqrt{25}$", "5"),
    ("\u22123", "-3"),
    ("0:34", "0:34"),
    ("3 1/2", "3.5"),
    ("3 1/2 hours", "7/2"),
    ("3\u00bd", "3.5"),
    ("\u00bd", "0.5"),
    ("10\u00b2", "100"),
    ("5 m\u00b2", "5"),
    ("\u22485", "5"),
    ("~5", "5"),
    (r"$\approx 5$", "5"),
    ("about 5", "5"),
    ("1,000,000", "1000000"),
    ("1,234.5", "1234.5"),
    ("2 + 3 = 5", "5"),
    ("$5$ and $5$", "5"),
    ("<answer>5</answer>", "5"),
    ("2 \u00d7 2.5", "5"),
    ("**5**", "5"),
    ("There are **5** cups.", "5"),
    ("**Answer: 5**", "5"),
    ("**5.**", "5"),
    ("*5*", "5"),
    ("__5__ cups", "5"),
    ("`5`", "5"),
    (r"45^\circ", "45"),
    (r"$45^{\circ}$ C", "45"),
    ("5000", "5e3"),
    ("1.5e3", "1500"),
    ("1.5E+3 m", "1500"),
    ("about 2e-2.", "0.02"),
    ("2 * 2.5", "5"),
    ("5*10^{3}", "5000"),
    ("2^{10}", "1024"),
    ("$5e12$", "5000000000000"),
    ("2*2.5*1", "5"),
]


def test_the_same_number() -> None:
    assert [case for case in SAME if not grade_number(*case)] == []


OTHERS = [
    ("6", "5"),
    ("", "5"),
    ("5e3", "5"),
    ("5", "5e3"),
    ("5e100", "5"),
    ("**4** or **5**", "5"),
    ("2**3", "23"),
    ("not **5**", "5"),
    ("-5", "5"),
    ("five", "5"),
    ("3.1416", "3.14159"),
    ("4 or 5", "5"),
    ("5 or 4", "5"),
    ("4, 5", "5"),
    ("4; 5", "5"),
    ("between 4 and 5", "5"),
    ("0:59", "0:34"),
    ("at 0:34 there are 5", "5"),
    ("5!", "5"),
    ("5/0", "5"),
    ("5" * 300, "5"),
    ("I count 5. " * 50, "5"),
    *[("3 4 5", truth) for truth in ("3", "4", "5")],
    *[("3 vs 4", truth) for truth in ("3", "4")],
    *[("3 1/2", truth) for truth in ("1", "3", "1/2")],
    *[("3,4", truth) for truth in ("3.4", "3", "4")],
    *[("5 of 10", truth) for truth in ("5", "10")],
    (r"\boxed{5} or \boxed{6}", "5"),
    (r"It is not \boxed{5}", "5"),
    (r"2 is less than $\boxed{5}$", "5"),
    (r"\boxed{\ge 5}", "5"),
    (r"5, or rather \boxed{6}", "5"),
    (r"\boxed{}", "5"),
    (r"\frac{x}{2}", "0.5"),
    (r"$\frac{1}{2}$ or $\frac{1}{3}$", "0.5"),
    (r"$\frac{1}{2}$ from 3", "0.5"),
    ("not 3", "3"),
    ("it isn't 3", "3"),
    ("at least 5", "5"),
    ("more than 5", "5"),
    (">5", "5"),
    (r"$\neq 5$", "5"),
    ("10\u00b2", "102"),
    ("10\u2082", "102"),
    ("4\u20135", "5"),
    ("3\n4", "4"),
    ("$3$, $4$", "4"),
    ("[3, 4]", "4"),
    (r"3 \text{ or } 4", "4"),
    ("5or6", "5"),
    ("5to7", "5"),
    ("3vs4", "3"),
    ("4 or6", "4"),
    ("5x3", "5"),
    ("5x3", "15"),
    ("2h30", "2"),
    ("3m20s", "3"),
    ("02-05", "2"),
    ("12/05", "12"),
    ("12/05/2023", "12"),
    ("2023-05-01", "2023"),
]


def test_another_number_or_none_or_several() -> None:
    assert [case for case in OTHERS if grade_number(*case)] == []


@pytest.mark.parametrize(
    "answer",
    [
        "9^9^9^9",
        "9^99^99",
        "2^-9^99",
        "$9^{99}^{99}$",
        "9^99 ^99",
        "2**100000000000",
        "$9^{9^{9}}$",
        "$((9^{99})^{99})^{99}$",
        "$10^{1000000000}$",
        "99999999999!",
        r"$\sum_{i=1}^{100000000} i^{0.5}$",
        r"$\int \frac{x^{13}+3}{x^7+x+1} dx$",
        r"$(\sqrt{2}+\sqrt{3}+\sqrt{5}+\sqrt{7}+\sqrt{11}+\sqrt{13})^{99}$",
        "$" + "(a+b)(c+d)" * 18 + "$",
        r"$\sqrt{" + "7" * 180 + "}$",
        "$" + "[(" * 40 + "1" + ")]" * 40 + "$",
        "$" + "{" * 60 + "1" + "}" * 60 + "$",
        "$" + "|" * 40 + "1" + "|" * 40 + "$",
    ],
)
def test_no_answer_computes_for_long(answer: str) -> None:
    """Unbounded, each of these takes minutes or more, beyond the test's timeout."""
    assert not grade_number(answer, "5")


def test_outside_the_main_thread() -> None:
    """math-verify's own guard, a signal, fails there, and all answers would be wrong."""
    results: list[bool] = []
    numbers._parse.cache_clear()
    thread = threading.Thread(target=lambda: results.append(grade_number(r"\frac{6}{8}", "0.75")))
    thread.start()
    thread.join(60)
    assert results == [True]


def test_is_number() -> None:
    assert [is_number(truth) for truth in ("5", "5 dogs", "1/2", "a dog", "0:34", "")] == [True] * 3 + [False] * 3


def test_a_truth_of_several_numbers_is_none() -> None:
    assert not any(is_number(truth) for truth in ("3,4", "4 or 5", "3 4"))
    assert is_number("1,000") and is_number("3 1/2")


def test_nested_brackets_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """math-verify takes 24 seconds for this."""
    assert not grade_number("2", "1")  # now it has read the truth
    texts: list[str] = []

    def parse(text: str, **_: Any) -> list[Any]:
        texts.append(text)
        return []

    monkeypatch.setattr(math_verify, "parse", parse)
    assert not grade_number("$[(7)]$", "1") and "$[(7)]$" in texts
    nested = "$" + "[(" * 40 + "7" + ")]" * 40 + "$"
    assert not grade_number(nested, "1") and nested not in texts
