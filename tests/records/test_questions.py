"""Questions apart from their options, and what a list shows of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.records.conftest import Browse
from tests.viewer_page import Page, line, written
from verl_video_tools.records.questions import split_question


@pytest.mark.parametrize(
    ("question", "asked", "options"),
    [
        ("Which?\nA. red\nB. blue cross", "Which?", "A. red B. blue cross"),
        ("Which\none?\n\n(A) red\n(B) blue\nAnswer with a letter.", "Which one?", "(A) red (B) blue"),
        ("Which?\nA: red\nB: blue\nC:green", "Which?", "A: red B: blue C:green"),
        ("A. Dent walks in.\nWhere to?", "A. Dent walks in. Where to?", ""),
        ("Who?\nB. red\nA. blue", "Who? B. red A. blue", ""),
        ("Who?\nA. red\nC. blue", "Who? A. red C. blue", ""),
        ("A. red\nB. blue", "", "A. red B. blue"),
        ("How many?", "How many?", ""),
        ("", "", ""),
    ],
)
def test_options_stand_apart(question: str, asked: str, options: str) -> None:
    assert split_question(question) == (asked, options)


def asked_in_list(page: Page) -> list[list[str]]:
    """Question and options as the list shows them, in order."""
    own = [text for tag, own, text in page.elements if tag == "td" and "colspan" in own]
    whole = [str(own["title"]).split("\n") for tag, own, _ in page.elements if tag == "td" and "colspan" in own]
    assert all(text.endswith(options) for text, (_, options) in zip(own, whole, strict=True))
    return [[text.removesuffix(options), options] for text, (_, options) in zip(own, whole, strict=True)]


def shown_in_list(tmp_path: Path, browse: Browse, questions: list[str], fragment: str = "") -> list[list[str]]:
    written(tmp_path, [line(0, score=float(n), question=text) for n, text in enumerate(questions)])
    return asked_in_list(browse(tmp_path / "view.html", fragment))


def test_chromium_shows_a_question_once_for_rows_that_follow_each_other(tmp_path: Path, browse: Browse) -> None:
    one, two = "Which?\nA. red\nB. blue", "Which?\nA. red\nB. green"
    given = [one, one, two, "Who?"]
    assert shown_in_list(tmp_path, browse, given) == [
        ["Which?", "A. red B. blue"],
        ["Which?", "A. red B. green"],
        ["Who?", ""],
    ]
    assert len(shown_in_list(tmp_path, browse, [one, two, one])) == 3
    rows = shown_in_list(tmp_path, browse, [one, two, one], "sort=question&text=blue")
    assert rows == [["Which?", "A. red B. blue"]], "options are searched, too"


def test_chromium_leaves_out_what_all_questions_share(tmp_path: Path, browse: Browse) -> None:
    given = [
        f"These are the frames of a video. How many {noun} are in it? Answer with one number only." for noun in "abc"
    ]
    assert [text for text, _ in shown_in_list(tmp_path, browse, given)] == [
        "… a are in …",
        "… b are in …",
        "… c are in …",
    ]


@pytest.mark.parametrize(
    "given",
    [
        ["What is shown here?"] * 3,
        ["What is shown at 3 s?", "What is shown at 4 s?", "What is shown at 5 s?"],  # few words, which say something
        ["What is shown at 3 s?", "Who comes in?"],
        [],
    ],
)
def test_chromium_leaves_short_or_single_questions_whole(tmp_path: Path, browse: Browse, given: list[str]) -> None:
    shown = shown_in_list(tmp_path, browse, given)
    assert [text for text, _ in shown] == list(dict.fromkeys(given))


def test_chromium_leaves_out_long_beginnings_that_many_share(tmp_path: Path, browse: Browse) -> None:
    preamble = "The subtitles of this video are listed in the order in which they are spoken:"
    given = [f"{preamble} {word} comes first, then he sings" for word in "abcd"] + ["Who is it?", "Why is it so?"]
    shown = [text for text, _ in shown_in_list(tmp_path, browse, given)]
    assert shown == [f"… {word} comes first, then he sings" for word in "abcd"] + ["Who is it?", "Why is it so?"]
