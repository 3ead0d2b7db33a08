"""Two rollouts of a group side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.records.conftest import Browse
from tests.records.test_html import ATTACK, listed, texts_of
from tests.videos.files import MakeVideo
from tests.viewer_page import Page, frames, line, written
from verl_video_tools.core.types import StopReason, Turn
from verl_video_tools.records.thumbnails import decode_thumbnails


def group(path: str = "/videos/none.mp4") -> list[dict[str, Any]]:
    """Two rollouts of a group, and one of another; the second looks elsewhere, and does not answer."""
    one, two = line(0, path=path), line(1, score=0.0, path=path, stop=StopReason.MAX_TURNS)
    two["reward"] |= {"acc": 0.0, "accuracy": 0.0}
    call = two["trajectory"].turns[0].calls[0]
    call.arguments, call.frames = {"start_time": 6.0}, frames(31, 33, 35)
    two["trajectory"].turns[0].text = "<think>look again</think>"
    two["trajectory"].turns.append(Turn(text="C"))
    two["trajectory"].answer = None
    return [one, two, line(0) | {"uid": "group-2"}]


def marked(page: Page) -> list[str]:
    return texts_of(page, "mark")


def test_chromium_compares_what_is_clicked(tmp_path: Path, browse: Browse, make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    lines = group(path)
    written(tmp_path, lines, thumbnails=decode_thumbnails([(path, one["trajectory"]) for one in lines]))
    page = browse(tmp_path / "view.html", "rollout=0", "document.querySelector('[data-compare]').click();")
    assert texts_of(page, "h2") == ["rollout 0 and rollout 1 of one group"]

    rows = page.rows()
    table = rows[rows.index(["", "rollout 0", "rollout 1", "difference"]) + 1 :]
    assert table == [
        ["answer", "B", "\u2013", ""],
        ["stop reason", "answer", "max_turns", ""],
        ["score", "1", "0", "-1"],
        ["acc", "1", "0", "-1"],
        ["accuracy", "1", "0", "-1"],
        ["format", "0.5", "0.5", ""],
        ["advantage", "0.25", "0.25", ""],
        ["turns", "2", "3", "+1"],
        ["calls", "1", "1", ""],
        ["frames", "5", "6", "+1"],
    ]
    differing = [text for tag, own, text in page.elements if tag == "tr" and own.get("class") == "differs"]
    assert len(differing) == 7

    # One axis: a row for each look of either, and each frame a tick.
    labels = [text for tag, _, text in page.elements if tag == "text" and text.startswith("rollout")]
    assert labels == [
        "rollout 0, first look: 3 frames",
        "rollout 0, turn 1: crop_video: 2 frames",
        "rollout 0, turn 1: crop_video: out_of_range",
        "rollout 1, first look: 3 frames",
        "rollout 1, turn 1: crop_video: 3 frames",
        "rollout 1, turn 1: crop_video: out_of_range",
    ]
    assert [own.get("class") for tag, own in page.tags if tag == "line"].count("tool") == 5
    assert len([source for source in page.having("src") if source.startswith("data:image/jpeg")]) == 3 + 2 + 3

    assert marked(page) == [
        'crop_video {"start_time":2}',
        " again",
        'crop_video {"start_time":6}',
        "C",
    ]
    assert texts_of(page, "p", **{"class": "soft"}) == ["It had ended."]


def test_chromium_takes_what_was_not_scored_for_no_number(tmp_path: Path, browse: Browse) -> None:
    """Of a held-out rollout, what it would earn beside its siblings is not known; it was compared as 0."""
    lines = [line(n, method="compose") | {"advantage": advantage} for n, advantage in enumerate([None, 0.25])]
    for recorded, curiosity in zip(lines, (0.0, 0.5), strict=True):
        recorded["trajectory"].made_of = {"rewards": ["accuracy", "curiosity"], "group_rewards": ["curiosity"]}
        recorded["reward"] = {"score": 1.0, "accuracy": 1.0, "curiosity": curiosity}
    written(tmp_path, lines)
    rows = browse(tmp_path / "view.html", "rollout=0&compare=1").rows()
    assert ["accuracy", "1", "1", ""] in rows and ["curiosity", "\u2013", "0.5", ""] in rows


def test_chromium_compares_what_the_address_names_within_a_group(tmp_path: Path, browse: Browse) -> None:
    written(tmp_path, group())
    file = tmp_path / "view.html"
    for fragment, heading in {
        "rollout=0&compare=1": "rollout 0 and rollout 1 of one group",
        "rollout=1&compare=0": "rollout 1 and rollout 0 of one group",
        "rollout=0&compare=2": "Reward 1, advantage 0.25",
        "rollout=0&compare=0": "Reward 1, advantage 0.25",
        "rollout=0&compare=9": "Reward 1, advantage 0.25",
        "rollout=0&compare=x": "Reward 1, advantage 0.25",
    }.items():
        assert texts_of(browse(file, fragment), "h2") == [heading], fragment
    click = "[...document.querySelectorAll('#rollout button')].find((button) => button.textContent === '{}').click();"
    page = browse(file, "rollout=0&compare=1", click.format("swap"))
    assert texts_of(page, "h2") == ["rollout 1 and rollout 0 of one group"]
    page = browse(file, "rollout=0&compare=1", click.format("rollout 0 alone"))
    assert texts_of(page, "h2") == ["Reward 1, advantage 0.25"]


def test_chromium_marks_the_words_that_differ(tmp_path: Path, browse: Browse) -> None:
    lines = [line(0, text="he walks in, sits down and reads"), line(1, text="she walks in and reads aloud")]
    written(tmp_path, lines)
    page = browse(tmp_path / "view.html", "rollout=0&compare=1")
    assert marked(page) == ["he", ", sits", "down ", "she", " aloud"]
    texts = texts_of(page, "div", **{"class": "text"})
    assert {"he walks in, sits down and reads", "she walks in and reads aloud"} <= set(texts)


def test_chromium_marks_the_middle_of_long_texts(tmp_path: Path, browse: Browse) -> None:
    """Two texts of 4,000 words are not compared word by word: it would take seconds and 64 MB."""
    lines = [line(n, text=" ".join(["same", *(f"{word}{n}" for word in range(2000)), "end"])) for n in range(2)]
    written(tmp_path, lines)
    one, two = marked(browse(tmp_path / "view.html", "rollout=0&compare=1"))
    assert one.startswith("00") and one.endswith("19990") and two.startswith("01") and two.endswith("19991")


def test_chromium_takes_hostile_text_for_text(tmp_path: Path, browse: Browse) -> None:
    lines = [line(n, text=f"{ATTACK} {n} {ATTACK}", method=ATTACK, question=ATTACK) for n in range(2)]
    for recorded in lines:
        recorded["reward"][ATTACK] = float(recorded["session_id"])
        recorded["trajectory"].flags = [ATTACK * (1 + recorded["session_id"])]
    written(tmp_path, lines)
    page = browse(tmp_path / "view.html", "rollout=0&compare=1")
    assert listed(page) == [0, 1] and not page.having("data-broken") and not page.having("onerror")
    assert "".join(text for tag, _, text in page.elements if tag == "article").count(ATTACK) >= 8
