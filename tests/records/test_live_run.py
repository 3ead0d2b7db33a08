"""What a live page is told: what it lacks, and nothing twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.recorded_run import rollout, write_run
from tests.records.test_html import SEQUENCE
from tests.videos.files import MakeVideo
from tests.viewer_page import line
from verl_video_tools.core.errors import UsageError
from verl_video_tools.records import live_run
from verl_video_tools.records.live_run import LiveRun
from verl_video_tools.records.records import RecordWriter


def lines(step: int, count: int = 2) -> list[dict[str, Any]]:
    return [rollout(f"group-{step}", float(number)) | {"session_id": number} for number in range(count)]


class Page:
    """What a page keeps of what it was told."""

    def __init__(self, run: LiveRun) -> None:
        self.run, self.version = run, 0
        self.rollouts: dict[int, dict[str, Any]] = {}
        self.told: dict[str, Any] = {}

    def ask(self) -> list[int]:
        """Ids that are new to it."""
        told = self.run.changes(self.version)
        self.version = told["version"]
        if "order" not in told:
            return []
        self.told = told
        added = {summary["id"]: summary for summary in told["added"]}
        known = self.rollouts | added
        self.rollouts = {id: known[id] for id in told["order"]}
        return sorted(added)

    def places(self) -> list[tuple[int, int]]:
        return [(rollout["step"], rollout["session"]) for rollout in self.rollouts.values()]


def live(folder: Path, **options: Any) -> LiveRun:
    return LiveRun(folder, **{"min_seconds": 0.0, **options})


def test_pages_are_told_what_each_lacks(tmp_path: Path) -> None:
    run = live(write_run(tmp_path, {1: lines(1)}))
    one = Page(run)
    assert one.ask() == [0, 1] and one.ask() == []
    write_run(tmp_path, {2: lines(2)})
    two = Page(run)
    assert two.ask() == [0, 1, 2, 3]
    assert one.ask() == [2, 3]
    assert one.places() == two.places() == [(2, 0), (2, 1), (1, 0), (1, 1)], "newest step first"
    assert two.told["components"]["longvt"][0] == "accuracy" and two.told["num_left_out"] == 0
    assert 0 <= two.told["seconds_since_written"] < 60


def test_of_more_rollouts_than_fit_the_last_steps_are_shown(tmp_path: Path) -> None:
    write_run(tmp_path, {step: lines(step) for step in (1, 2, 3)})
    run = live(tmp_path, max_rollouts=4)
    page, late = Page(run), Page(run)
    page.ask()
    assert page.places() == [(3, 0), (3, 1), (2, 0), (2, 1)] and page.told["num_left_out"] == 2
    (tmp_path / "trajectories" / "step_000003.jsonl").unlink()
    page.ask()
    assert page.places() == [(2, 0), (2, 1), (1, 0), (1, 1)]
    late.ask()
    write_run(tmp_path, {4: lines(4)})
    for each in (page, late):
        each.ask()
        assert each.places() == [(4, 0), (4, 1), (2, 0), (2, 1)]


def test_a_step_that_is_written_again_takes_the_place_of_the_former(tmp_path: Path) -> None:
    run = live(write_run(tmp_path, {1: lines(1), 2: lines(2)}))
    page = Page(run)
    page.ask()
    before = set(page.rollouts)
    RecordWriter(tmp_path / "trajectories").write(2, [{"step": 2, **told} for told in lines(2, count=3)])
    assert len(page.ask()) == 3
    assert page.places() == [(2, 0), (2, 1), (2, 2), (1, 0), (1, 1)]
    gone = before - set(page.rollouts)
    with pytest.raises(UsageError, match="not shown any more"):
        run.record(max(gone))


def test_a_run_that_is_removed_and_begun_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", {1: lines(1)})
    page = Page(live(folder))
    page.ask()
    shutil.rmtree(folder)
    page.ask()
    assert page.rollouts == {} and page.told["notes"] == [f"{folder} is not there any more"]
    write_run(folder, {1: lines(1, count=1)})
    page.ask()
    assert page.places() == [(1, 0)] and page.told["notes"] == []


def test_notes_are_bounded(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {1: lines(1)})
    with (folder / "trajectories" / "step_000001.jsonl").open("a") as file:
        file.write("no rollout\n" * 30)
    page = Page(live(folder))
    page.ask()
    assert len(page.rollouts) == 2 and len(page.told["notes"]) == 21 and page.told["notes"][-1] == "10 more"


def test_a_record_with_texts_of_its_tokens(tmp_path: Path) -> None:
    recorded = line() | {"sequences": [SEQUENCE]}
    recorded["trajectory"] = recorded["trajectory"].to_dict()
    run = live(write_run(tmp_path, {3: [recorded]}), token_text=lambda id: f"<{id}>")
    run.changes(0)
    record = run.record(0)
    assert record["trajectory"]["turns"][0]["text"] == "<think>look</think>"
    assert record["vocabulary"] == {id: f"<{id}>" for id in (5, 6, 7, 8, 9)}
    with pytest.raises(UsageError, match="not shown any more"):
        run.record(1)


def test_pictures_are_decoded_once(tmp_path: Path, make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    recorded = [line(0, path=path), line(1, path="/no/video.mp4")]
    told = [one | {"trajectory": one["trajectory"].to_dict()} for one in recorded]
    run = live(write_run(tmp_path, {3: told}))
    run.changes(0)
    decoded, decode = [], live_run.decode_thumbnails
    monkeypatch.setattr(live_run, "decode_thumbnails", lambda lines: decoded.append(1) or decode(lines))
    shown, missing = run.pictures(0), run.pictures(1)
    assert sorted(shown["pictures"], key=int) == ["0", "10", "12", "25", "49"] and shown["note"] is None
    assert missing["pictures"] == {} and "VideoNotFoundError" in missing["note"]
    assert run.pictures(0) == shown and len(decoded) == 2
    without = live(tmp_path, pictures=False)
    without.changes(0)
    assert without.pictures(0) == {"pictures": {}, "note": None} and len(decoded) == 2


def test_what_is_there_can_be_read_before_a_page_asks(tmp_path: Path) -> None:
    run, told = live(write_run(tmp_path, {step: lines(step) for step in (1, 2)}), min_seconds=3600.0), []
    run.read(told.append)
    assert told == [2, 4]
    write_run(tmp_path, {3: lines(3)})
    page = Page(run)
    page.ask()
    assert page.places() == [(2, 0), (2, 1), (1, 0), (1, 1)]


def test_files_are_read_no_more_often_than_asked(tmp_path: Path) -> None:
    run = live(write_run(tmp_path, {1: lines(1)}), min_seconds=3600.0)
    page = Page(run)
    page.ask()
    write_run(tmp_path, {2: lines(2)})
    assert page.ask() == [] and len(page.rollouts) == 2
