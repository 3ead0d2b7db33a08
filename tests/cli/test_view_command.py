"""`vvt view`: options, what is printed, and bad usage; and `vvt replay --html`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.videos.files import MakeVideo
from tests.viewer_page import Page, line
from verl_video_tools.cli.main import run
from verl_video_tools.records.records import RecordWriter
from verl_video_tools.replay import replay


@pytest.fixture
def records(tmp_path: Path, make_video: MakeVideo) -> Path:
    path = make_video(num_frames=50, width=64, height=36)
    lines = [line(0, path=path), line(1, path=path), line(2, path="/no/video.mp4")]
    for recorded in lines:
        recorded["trajectory"] = recorded["trajectory"].to_dict()
    RecordWriter(tmp_path / "trajectories").write(3, lines)
    return tmp_path / "trajectories"


def test_the_page_of_a_run(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "view.html"
    assert run(["view", str(records), "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"{out}: 3 rollouts, 5 thumbnails" in told
    assert "videos without thumbnails: 1, for example VideoNotFoundError" in told
    assert len(Page(out.read_text()).blocks["index"]["rollouts"]) == 3


def test_fewer_rollouts(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "view.html"
    options = ["--out", str(out), "--max-rollouts", "2"]
    assert run(["view", str(records / "step_000003.jsonl"), *options]) == 0
    assert "2 rollouts, 1 others left out (--max-rollouts)" in capsys.readouterr().out
    index = Page(out.read_text()).blocks["index"]
    assert [rollout["session"] for rollout in index["rollouts"]] == [0, 1]
    assert index["num_left_out"] == 1


@pytest.mark.parametrize(("given", "page"), [(".", "rollouts.html"), ("trajectories", "rollouts.html")])
def test_a_run_is_its_folder_or_that_of_its_records(
    given: str, page: str, records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["view", str(records.parent / given)]) == 0
    assert f"{records.parent / page}: 3 rollouts" in capsys.readouterr().out
    assert (records.parent / page).is_file()


def test_the_page_of_one_file_has_its_name(records: Path) -> None:
    assert run(["view", str(records / "step_000003.jsonl")]) == 0
    assert (records.parent / "step_000003.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["{folder}/none"], "no recorded rollout"),
        (["{records}", "--tokenizer", "{folder}/none"], "no such folder"),
        (["{records}", "--out", "{folder}/none/view.html"], "cannot write"),
        (["{records}", "--out", "."], "it is a folder; name a file"),
        (["{records}", "--out", "{records}/step_000003.jsonl"], "is the source; name another file to write"),
    ],
)
def test_bad_usage_is_one_line(
    options: list[str], complaint: str, records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [option.format(folder=tmp_path, records=records) for option in options]
    assert run(["view", "--out", str(tmp_path / "view.html"), *given]) == 2
    error = capsys.readouterr().err
    assert complaint in error.splitlines()[-1]
    assert not (tmp_path / "view.html").exists()


def test_replay_draws_what_it_returns(tmp_path: Path, make_video: MakeVideo) -> None:
    out = tmp_path / "replay.html"
    turns = ["<think>look</think><action>choose frames between 10 and 30</action>"]
    video = make_video(num_frames=50, width=64, height=36)
    result = replay("framethinker", video, "What?\nA. a\nB. b", "B", turns, html=out)
    blocks = Page(out.read_text()).blocks
    assert json.loads(json.dumps(result["reward"])) == blocks["rollout-0"]["reward"]
    assert blocks["rollout-0"]["trajectory"]["turns"][0]["text"] == turns[0]
    assert blocks["rollout-0"]["ground_truth"] == "B"
    shown = {frame["index"] for frame in result["initial_frames"]}
    shown |= {frame["index"] for call in result["turns"][0]["calls"] for frame in call["frames"]}
    assert {int(index) for index in blocks["video-0"]} == shown
