"""The viewer's page: what stands in it, that nothing recorded is taken for markup, and what Chromium makes of it."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.records.conftest import Browse
from tests.videos.files import MakeVideo
from tests.viewer_page import Page, frames, line, written
from verl_video_tools.core.errors import CallError, UsageError
from verl_video_tools.core.types import ModelCall, StopReason, Trajectory
from verl_video_tools.records.thumbnails import Thumbnails, decode_thumbnails
from verl_video_tools.records.view import write_html

ATTACK = (
    "</script><script>document.body.dataset.broken = 1</script><img src=x onerror='document.body.dataset.broken = 2'>"
)
HOSTILE = [ATTACK, "<!-- <script>", "]]>", "&lt;b&gt;", "{script}", "\u2028", '"><svg onload=alert(1)>', "<image>"]


def hostile_line() -> dict[str, Any]:
    text = " ".join(HOSTILE)
    hostile = line(text=text, question=text, path=f"/videos/{text}.mp4", method=text)
    hostile["uid"] = hostile["ground_truth"] = hostile["trajectory"].answer = text
    hostile["reward"][text] = 1.0
    for turn in hostile["trajectory"].turns:
        turn.observation = text
        for call in turn.calls:
            call.name, call.arguments, call.error = text, {text: text}, CallError.parse(text)
            call.text, call.model_calls = text, [ModelCall(text, call.frames[:1], text, text, text)]
    hostile["trajectory"].flags = [text]
    return hostile


# ------------------------------------------------------------------------------------------------------------ structure


def test_blocks_hold_index_rollouts_and_own_components(tmp_path: Path) -> None:
    page = Page(written(tmp_path, [line(0), line(1, score=float("nan"), method="of another version")], num_left_out=4))
    index = page.blocks["index"]
    assert index["num_left_out"] == 4
    assert list(index["components"]) == ["longvt"]
    assert "format" in index["components"]["longvt"]
    first, second = index["rollouts"]
    assert (first["method"], first["stop"], first["score"], first["advantage"]) == ("longvt", "answer", 1.0, 0.25)
    assert (first["calls"], first["frames"], first["session"], first["video"]) == (1, 5, 0, 0)
    assert second["score"] == "nan"  # JSON has no such number
    assert page.blocks["rollout-1"]["evidence_seconds"] == [2.0, 4.0]
    assert page.blocks["rollout-0"]["trajectory"]["turns"][0]["calls"][1]["error"] == "out_of_range: beyond the end"


def test_a_line_needs_nothing_but_its_trajectory(tmp_path: Path) -> None:
    trajectory = Trajectory("direct", "q?", error="the file is gone", stop_reason=StopReason.VIDEO_ERROR)
    page = Page(written(tmp_path, [{"trajectory": trajectory}]))
    assert page.blocks["index"]["rollouts"][0]["video"] is None
    assert page.blocks["rollout-0"]["sequences"] == []


def test_nothing_is_loaded(tmp_path: Path) -> None:
    page = Page(written(tmp_path, [line()]))
    assert not page.having("src") and not page.having("href")
    assert len(page.programs) == 1


def test_hostile_text_stays_inside_its_block(tmp_path: Path) -> None:
    text = written(tmp_path, [hostile_line()], title=ATTACK)
    page = Page(text)
    assert len(page.programs) == 1  # the viewer's own
    assert not [tag for tag, _ in page.tags if tag in ("img", "svg")]
    assert page.blocks["rollout-0"]["trajectory"]["turns"][0]["text"] == " ".join(HOSTILE)
    data = "".join(re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL))
    assert not re.search("[<>&\u2028]", data)


def test_half_a_character_does_not_stop_the_page(tmp_path: Path) -> None:
    page = Page(written(tmp_path, [line(text="cut \ud83d")], title="cut \ud83d"))
    assert page.blocks["rollout-0"]["trajectory"]["turns"][0]["text"] == "cut \ud83d"


def test_tokens_are_counted_in_runs_with_mask_and_probabilities(tmp_path: Path) -> None:
    recorded = line()
    recorded["sequences"] = [
        {
            "prompts": [5, 7, 7, 7],
            "responses": [8, 8, 7, 7, 9],
            "response_mask": [1, 1, 0, 0, 1],
            "rollout_log_probs": [-0.5, -0.25, 0.0, 0.0, -1.0],
            "old_log_probs": [-0.5, -0.125, 0.0, 0.0, -1.00004],
            "advantages": [0.25, 0.25, 0.0, 0.0, 0.25],
        }
    ]
    page = Page(written(tmp_path, [recorded], token_text=lambda id: f"<{id}>"))
    (sequence,) = page.blocks["rollout-0"]["sequences"]
    assert sequence["prompt"] == [[5, 1, 0], [7, 3, 0]]
    assert sequence["response"] == [[8, 1, 1, -0.5, -0.5], [8, 1, 1, -0.25, -0.125], [7, 2, 0], [9, 1, 1, -1.0, -1.0]]
    assert sequence["advantage"] == 0.25
    assert page.blocks["vocabulary"] == {str(id): f"<{id}>" for id in (5, 7, 8, 9)}


def test_tokens_of_a_validation_rollout_have_no_probabilities_in_training(tmp_path: Path) -> None:
    recorded = line() | {"advantage": None}
    sampled = {"prompts": [5], "responses": [8, 7, 7], "response_mask": [1, 0, 0]}
    recorded["sequences"] = [sampled | {"rollout_log_probs": [-0.5, 0.0, 0.0]}, sampled]
    sequences = Page(written(tmp_path, [recorded])).blocks["rollout-0"]["sequences"]
    assert [sequence["response"][0] for sequence in sequences] == [[8, 1, 1, -0.5, None], [8, 1, 1, None, None]]
    assert [sequence["advantage"] for sequence in sequences] == [None, None]


def test_a_page_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        write_html([line()], tmp_path / "no" / "view.html", title="t")


# ----------------------------------------------------------------------------------------------------------- thumbnails


def test_each_frame_is_decoded_once_and_missing_videos_are_told(tmp_path: Path, make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    told: list[tuple[int, int]] = []
    rollouts = [(path, line()["trajectory"]), (path, line(1)["trajectory"]), ("/no/video.mp4", line()["trajectory"])]
    thumbnails = decode_thumbnails(rollouts, lambda done, wanted: told.append((done, wanted)))
    assert [index for index, _ in thumbnails.jpeg_of[path]] == [0, 10, 12, 25, 49]
    assert all(jpeg.startswith(b"\xff\xd8") for jpeg in thumbnails.jpeg_of[path].values())
    assert list(thumbnails.notes) == ["/no/video.mp4"]
    assert told == [(1, 2), (2, 2)]

    page = Page(written(tmp_path, [line(path=path), line(path="/no/video.mp4")], thumbnails=thumbnails))
    assert sorted(page.blocks["video-0"], key=int) == ["0", "10", "12", "25", "49"]
    assert base64.b64decode(page.blocks["video-0"]["25"]) == thumbnails.jpeg_of[path][25, None]
    assert "VideoNotFoundError" in page.blocks["index"]["videos"][1]["note"]
    assert "video-1" not in page.blocks


def test_another_file_in_the_place_of_the_recorded_one_is_told(make_video: MakeVideo) -> None:
    path = make_video(num_frames=60, width=64, height=36)
    thumbnails = decode_thumbnails([(path, line()["trajectory"])])
    assert "now has 60 frames" in thumbnails.notes[path]


def test_thumbnails_are_bounded(make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    trajectory = line()["trajectory"]
    trajectory.initial_frames = frames(*range(50))
    thumbnails = decode_thumbnails([(path, trajectory)], max_thumbnails=7)
    assert [index for index, _ in thumbnails.jpeg_of[path]] == [
        0,
        10,
        12,
        16,
        32,
        49,
    ]  # four of the initial frames, two of the call
    none_left = decode_thumbnails([(path, trajectory)], max_thumbnails=1)
    assert not none_left.jpeg_of and "1 at most" in none_left.notes[path]


# ------------------------------------------------------------------------------------------------------------- Chromium


UNFOLD = "for (const details of document.querySelectorAll('details')) details.open = true;"


def set_controls(**values: str) -> str:
    """A script that sets the filters as a reader does."""
    return "".join(
        f"{{ const control = document.getElementById('filters').elements[{json.dumps(name)}];"
        f" control.value = {json.dumps(value)}; control.dispatchEvent(new Event('input', {{ bubbles: true }})); }}"
        for name, value in values.items()
    )


def texts_of(page: Page, tag: str, **attributes: str) -> list[str]:
    """What stands in each of these elements."""
    return [text for name, own, text in page.elements if name == tag and attributes.items() <= own.items()]


def listed(page: Page) -> list[int]:
    """Rollouts in the list, which comes before the rows of the chosen one's group."""
    count = int(page.having("data-shown")[0])
    return [int(id) for id in page.having("data-rollout")[:count]]


def test_chromium_filters_and_sorts(tmp_path: Path, browse: Browse) -> None:
    lines = [
        line(0, score=0.0),
        line(1, score=2.0),
        line(2, score=1.0, stop=StopReason.MAX_TURNS),
        line(3, score=1.0, method="direct"),
        line(4, score=0.5),
    ]
    written(tmp_path, lines)
    file = tmp_path / "view.html"
    assert listed(browse(file, "")) == [0, 1, 2, 3, 4]
    page = browse(file, "method=longvt&stop=answer&min=0.5&max=2&sort=score&descending=1&rollout=4")
    assert listed(page) == [1, 4]
    assert "2 of 5 rollouts, mean reward 1.25" in page.texts
    assert "Reward 0.5, advantage 0.25" in page.texts  # the chosen one


def test_chromium_sorts_rewards_that_are_no_numbers(tmp_path: Path, browse: Browse) -> None:
    """What is missing comes last in either direction; infinite ones at their end."""
    scores = [1.0, float("nan"), 0.5, float("inf"), None, 2.0, float("nan"), float("-inf"), 0.0]
    lines = [line(number) for number in range(len(scores))]
    for recorded, score in zip(lines, scores, strict=True):
        recorded["reward"]["score"] = score
    written(tmp_path, lines)
    file = tmp_path / "view.html"
    assert listed(browse(file, "sort=score")) == [7, 8, 2, 0, 5, 3, 1, 4, 6]
    assert listed(browse(file, "sort=score&descending=1")) == [3, 5, 0, 2, 8, 7, 1, 4, 6]


def test_chromium_shows_a_text_result_once(tmp_path: Path, browse: Browse) -> None:
    recorded = line()
    turn = recorded["trajectory"].turns[0]
    turn.calls[0].text, turn.observation = "a red kettle", "The tool says: a red kettle"
    turn.calls[1].text = "of another kind"
    written(tmp_path, [recorded])
    texts = browse(tmp_path / "view.html", "rollout=0").texts
    assert "a red kettle" not in texts and "The tool says: a red kettle" in texts and "of another kind" in texts


def test_chromium_draws_a_rollout(tmp_path: Path, browse: Browse, make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    recorded = line(path=path)
    written(tmp_path, [recorded], thumbnails=decode_thumbnails([(path, recorded["trajectory"])]))
    page = browse(tmp_path / "view.html", "rollout=0")
    marks = [attributes.get("class") for tag, attributes in page.tags if tag == "line"]
    assert (marks.count("first"), marks.count("tool")) == (3, 2)
    rects = [attributes for tag, attributes in page.tags if tag == "rect"]
    tracks, evidence = ([rect["y"] for rect in rects if rect["class"] == kind] for kind in ("track", "evidence"))
    assert tracks == evidence and len(tracks) == 3, "over the frames of each row, and over no label"
    assert len([source for source in page.having("src") if source.startswith("data:image/jpeg;base64,")]) == 5
    for text in (
        "<think>look</think>",
        "2.0s <image>",
        "out_of_range: beyond the end",
        "turn 1: crop_video: out_of_range",
    ):
        assert text in page.texts
    assert "judge_calls" not in page.texts  # closed, so not drawn


SEQUENCE = {
    "prompts": [5, 7, 7, 7],
    "responses": [8, 6, 7, 7, 9],
    "response_mask": [1, 1, 0, 0, 1],
    "rollout_log_probs": [-0.5, -0.25, 0.0, 0.0, -1.0],
    "old_log_probs": [-0.5, -0.125, 0.0, 0.0, -1.0],
    "advantages": [0.25, 0.25, 0.0, 0.0, 0.25],
}


def test_chromium_shows_mask_group_reward_and_times(tmp_path: Path, browse: Browse, make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    lines = [line(session, score=score, path=path) for session, score in ((1, 0.5), (0, 2.0), (2, 0.5))]
    for recorded, advantage in zip(lines, (-0.5, 1.0, -0.5), strict=True):
        recorded |= {"advantage": advantage, "sequences": [SEQUENCE]}
    other = line(0, path=path) | {"uid": "group-2"}
    thumbnails = decode_thumbnails([(path, recorded["trajectory"]) for recorded in lines])
    written(tmp_path, [*lines, other], thumbnails=thumbnails, token_text=lambda id: f"<{id}>")
    page = browse(tmp_path / "view.html", "rollout=0", UNFOLD)

    # Of the tokens' spans the first is the legend's.
    assert texts_of(page, "span", **{"class": "prompt"}) == ["prompt", "<5>", "<7>\u00d73 "]
    assert texts_of(page, "span", **{"class": "trained"}) == ["trained (mask 1)", "<8>", "<6>", "<9>"]
    assert texts_of(page, "span", **{"class": "observed"}) == ["observation (mask 0)", "<7>\u00d72 "]
    assert "6, log-probability -0.25 in the rollout, -0.125 in training" in page.having("title")
    assert "Sequence 1 of 1: 4 prompt, 3 trained, 2 masked tokens" in texts_of(page, "summary")
    assert "advantage 0.25" in page.texts

    rows = page.rows()
    head = rows.index(["rollout", "reward", "advantage", "calls", "frames", "stop reason", "answer"])
    assert rows[head + 1 :] == [
        ["0", "2", "1", "1", "5", "answer", "B"],
        ["1", "0.5", "-0.5", "1", "5", "answer", "B"],
        ["2", "0.5", "-0.5", "1", "5", "answer", "B"],
    ]
    reward = rows.index(["score", "0.5"])
    assert rows[reward:head] == [
        ["score", "0.5"],
        ["acc", "1"],
        ["accuracy", "1"],
        ["format", "0.5"],
        ["judge_calls", "0"],
    ]
    assert texts_of(page, "figcaption") == ["0, 0:00.0", "25, 0:05.0", "49, 0:09.8", "10, 0:02.0", "12, 0:02.4"]


def test_chromium_shows_tokens_of_a_validation_rollout(tmp_path: Path, browse: Browse) -> None:
    known = ("prompts", "responses", "response_mask", "rollout_log_probs")
    written(tmp_path, [line() | {"advantage": None, "sequences": [{name: SEQUENCE[name] for name in known}]}])
    page = browse(tmp_path / "view.html", "rollout=0", UNFOLD)
    assert texts_of(page, "span", **{"class": "trained"}) == ["trained (mask 1)", "8 ", "6 ", "9 "]
    assert "6, log-probability -0.25 in the rollout" in page.having("title")
    assert not [text for text in page.texts if text.startswith("advantage 0")]


def test_chromium_opens_what_is_clicked(tmp_path: Path, browse: Browse) -> None:
    """A row of the list, one of the group's table, and the next by key."""
    written(tmp_path, [line(0, score=0.5), line(1, score=1.5), line(2, score=2.5)])
    rows = "document.querySelectorAll('#list [data-rollout]')"
    for act, heading in (
        (f"{rows}[1].click();", "Reward 1.5, advantage 0.25"),
        ("document.querySelectorAll('#rollout tbody [data-rollout]')[2].click();", "Reward 2.5, advantage 0.25"),
        (
            f"{rows}[0].dispatchEvent(new KeyboardEvent('keydown', {{ key: 'j', bubbles: true }}));",
            "Reward 1.5, advantage 0.25",
        ),
    ):
        assert texts_of(browse(tmp_path / "view.html", "", act), "h2") == [heading]


def test_chromium_filters_by_its_controls(tmp_path: Path, browse: Browse) -> None:
    lines = [
        line(0, score=0.0),
        line(1, score=2.0, question="Which red thing?"),
        line(2, score=1.0, stop=StopReason.MAX_TURNS) | {"uid": "group-9"},
        line(3, score=1.0, method="direct"),
        line(4, score=0.5) | {"step": 4},
        line(5, score=float("nan")),  # within no bounds
    ]
    wanted: list[tuple[dict[str, str], list[int]]] = [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"method": "direct"}, [3]),
        ({"stop": "max_turns"}, [2]),
        ({"min": "0.5"}, [1, 2, 3, 4]),
        ({"max": "0.5"}, [0, 4]),
        ({"min": "0.5", "max": "1"}, [2, 3, 4]),
        ({"step": "4"}, [4]),
        ({"text": "RED"}, [1]),
        ({"text": "group-9"}, [2]),
        ({"method": "longvt", "stop": "answer", "min": "0", "step": "3"}, [0, 1]),
        ({"step": "4", "text": "red"}, []),
    ]
    written(tmp_path, lines)
    read = (
        "lists.push([...document.querySelectorAll('#list [data-rollout]')].map((row) => Number(row.dataset.rollout)));"
    )
    clear = "document.querySelector('#filters [type=reset]').click();"
    acts = "".join(set_controls(**controls) + read + clear for controls, _ in wanted)
    page = browse(
        tmp_path / "view.html", "", f"const lists = []; {acts} document.body.dataset.lists = JSON.stringify(lists);"
    )
    (lists,) = page.having("data-lists")
    for (controls, expected), got in zip(wanted, json.loads(lists), strict=True):
        assert got == expected, controls
    assert listed(page) == [0, 1, 2, 3, 4, 5]  # cleared at last

    page = browse(tmp_path / "view.html", "", set_controls(method="longvt", min="1"))
    assert listed(page) == [1, 2]
    assert "2 of 6 rollouts, mean reward 1.5" in page.texts


def test_chromium_opens_500_rollouts(tmp_path: Path, browse: Browse) -> None:
    written(tmp_path, [line(number, score=number / 500) for number in range(500)], num_left_out=3)
    page = browse(tmp_path / "view.html", "rollout=499")
    assert listed(page) == [*range(500)]
    assert "500 of 500 rollouts, mean reward 0.499; 3 other rollouts left out (--max-rollouts)" in page.texts
    assert "Reward 0.998, advantage 0.25" in page.texts


def test_chromium_takes_hostile_text_for_text(tmp_path: Path, browse: Browse) -> None:
    hostile = hostile_line()
    notes = {hostile["extra_info"]["video_path"]: ATTACK}
    written(tmp_path, [hostile], title=ATTACK, thumbnails=Thumbnails(notes=notes))
    page = browse(tmp_path / "view.html", "rollout=0")
    assert listed(page) == [0]
    assert not page.having("data-broken")
    assert not page.having("onerror") and not page.having("onload")
    assert "".join(page.texts).count(ATTACK) >= 6  # title, question, video, turns, observations, calls
