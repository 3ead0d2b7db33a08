"""`vvt view`: options, what is told, and bad usage; and `vvt replay --html`."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.videos.files import MakeVideo
from tests.viewer_page import Page, line
from verl_video_tools.cli.main import run
from verl_video_tools.records.live_server import LiveServer
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


def test_fewer_rollouts_without_thumbnails(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "view.html"
    options = ["--out", str(out), "--max-rollouts", "2", "--no-thumbnails"]
    assert run(["view", str(records / "step_000003.jsonl"), *options]) == 0
    assert "2 rollouts, 1 others left out (--max-rollouts), 0 thumbnails" in capsys.readouterr().out
    index = Page(out.read_text()).blocks["index"]
    assert [rollout["session"] for rollout in index["rollouts"]] == [0, 1]
    assert index["num_left_out"] == 1


@pytest.mark.parametrize(("given", "page"), [(".", "rollouts.html"), ("trajectories", "rollouts.html")])
def test_a_run_is_its_folder_or_that_of_its_records(
    given: str, page: str, records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["view", str(records.parent / given), "--no-thumbnails"]) == 0
    assert f"{records.parent / page}: 3 rollouts" in capsys.readouterr().out
    assert (records.parent / page).is_file()


def test_the_page_of_one_file_has_its_name(records: Path) -> None:
    assert run(["view", str(records / "step_000003.jsonl"), "--no-thumbnails"]) == 0
    assert (records.parent / "step_000003.html").is_file()


@pytest.mark.parametrize("given", [".", "trajectories", "trajectories/step_000003.jsonl"])
def test_a_live_page_is_served_until_it_is_interrupted(
    given: str, records: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def serve(server: LiveServer) -> None:
        told.append(len(server.run.changes(0)["added"]))
        told.append(server.run.record(0)["trajectory"]["video"]["num_frames"])
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveServer, "serve_forever", serve)
    path = records.parent / given
    assert run(["view", str(path), "--live"]) == 0
    assert told == [3, 50]
    url, following = capsys.readouterr().out.splitlines()[:2]
    assert url.startswith("http://127.0.0.1:") and following == f"follows {path} until Ctrl-C"
    assert not list(records.parent.glob("*.html"))


def test_a_port_that_is_taken_is_told(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["view", str(records), "--live", "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1 port {port} (Address already in use)" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["{folder}/none"], "no recorded rollout"),
        (["{records}", "--port", "8765"], "--host and --port need --live"),
        (["{records}", "--host", "0.0.0.0"], "--host and --port need --live"),
        (["{folder}/none", "--live"], "--live serves a page and writes no file"),
        (["{records}", "--tokenizer", "{folder}/none"], "no such folder"),
        (["{records}", "--out", "{folder}/none/view.html"], "cannot be written"),
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


def test_a_live_page_needs_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view", str(tmp_path / "none"), "--live"]) == 2
    assert "no such folder or file" in capsys.readouterr().err


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
