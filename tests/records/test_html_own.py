"""What a rollout has of its own, and its verification, on the viewer's page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.records.conftest import Browse
from tests.videos.files import MakeVideo
from tests.viewer_page import Page, frames, line, written
from verl_video_tools.core.types import Verification
from verl_video_tools.records.thumbnails import decode_thumbnails


def test_what_the_rollouts_of_a_group_have_of_their_own(tmp_path: Path, browse: Browse) -> None:
    lines = [line(0), line(1), line(2)]
    lines[0]["trajectory"].settings = {"rung": 7}
    lines[1]["trajectory"].settings = {"initial_frames": 32, "prompt_file": "short.txt", "box": [64, 36]}
    lines[1]["trajectory"].prompt_digest = "0123abcd"
    written(tmp_path, lines)
    own = "initial_frames 32, prompt_file short.txt, box [64,36]"
    page = browse(tmp_path / "view.html", "rollout=1")
    assert f"differs from its group: {own}" in page.texts
    assert "system prompt from a file, digest 0123abcd" in page.texts
    rows = page.rows()
    head = rows.index(["rollout", "reward", "advantage", "calls", "frames", "stop reason", "answer", "differs in"])
    assert [row[-1] for row in rows[head + 1 :]] == ["rung 7", own, ""]
    plain = browse(tmp_path / "view.html", "rollout=2")
    assert not [text for text in plain.texts if text.startswith(("differs from its group:", "system prompt from"))]


def test_a_group_that_has_nothing_of_its_own_has_no_column_for_it(tmp_path: Path, browse: Browse) -> None:
    written(tmp_path, [line(0), line(1)])
    page = browse(tmp_path / "view.html", "rollout=0")
    assert ["rollout", "reward", "advantage", "calls", "frames", "stop reason", "answer"] in page.rows()
    assert "Verification" not in page.texts


def test_the_verification(tmp_path: Path, browse: Browse, make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    recorded = line(path=path)
    recorded["trajectory"].verification = Verification(frames(10, 31), "<b>C</b>")
    thumbnails = decode_thumbnails([(path, recorded["trajectory"])])
    assert (31, None) in thumbnails.jpeg_of[path]  # no other look shows it
    written(tmp_path, [recorded], thumbnails=thumbnails)
    page = browse(tmp_path / "view.html", "rollout=0")
    names = [attributes["alt"] for tag, attributes in page.tags if tag == "img"]
    assert names == [f"frame {index}" for index in (0, 25, 49, 10, 12, 10, 31)]
    assert {"Verification", "<b>C</b>", "verification: 2 frames", "shown for the verification  "} <= set(page.texts)
    ticks = [attributes.get("class") for tag, attributes in page.tags if tag == "line"]
    assert ticks.count("verification") == 2


@pytest.mark.parametrize("error", ["does not fit", "the policy has no more to say"])
def test_why_a_verification_has_no_reply(tmp_path: Path, browse: Browse, error: str) -> None:
    recorded = line()
    recorded["trajectory"].verification = Verification([], None, error)
    written(tmp_path, [recorded])
    page = browse(tmp_path / "view.html", "rollout=0")
    assert ("div", {"class": "bad"}, error) in page.elements
    assert isinstance(page, Page) and "verification: 0 frames" in page.texts


@pytest.mark.parametrize(("advantage", "told"), [(0.25, "0"), (None, "not scored: needs its group")])
def test_a_component_of_the_group_is_told_only_where_it_was_compared(
    tmp_path: Path, browse: Browse, advantage: float | None, told: str
) -> None:
    recorded = line(method="compose") | {"advantage": advantage}
    recorded["trajectory"].provenance = {"rewards": ["accuracy", "curiosity"], "group_rewards": ["curiosity"]}
    recorded["reward"] = {"score": 1.0, "accuracy": 1.0, "curiosity": 0.0}
    written(tmp_path, [recorded])
    rows = browse(tmp_path / "view.html", "rollout=0").rows()
    assert ["accuracy", "1"] in rows and ["curiosity", told] in rows
