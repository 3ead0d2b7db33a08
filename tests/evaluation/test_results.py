"""Intervals in `results.json`, for all items, groups and metrics; items that are asked several times."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.made_results import protocol, questions, record, summarised, write_result
from verl_video_tools.core.sample import clip_path
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.core.types import AnswerLabel, CallRecord, Trajectory, Turn
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles, GradedItem
from verl_video_tools.data.formats.entries import Entry, Row
from verl_video_tools.evaluation.items import read_items
from verl_video_tools.evaluation.results import call_figures
from verl_video_tools.evaluation.statistics import mean_by_video, share_interval


class Made(Benchmark):
    """With one metric that is a share, and one that is a negative difference."""

    name = "made"
    groupings = ("kind",)

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        raise NotImplementedError("its items are made here, and not read from a file")

    def metrics(self, items: Sequence[GradedItem]) -> dict[str, float]:
        share = sum(item.label is AnswerLabel.CORRECT for item in items) / len(items)
        return {"share": share, "gain": share - 1.0}


def test_every_figure_has_its_interval() -> None:
    asked = questions(80, 3, Made())
    records = [record(task, int(task.uid) % 5 != 0) for task in asked.tasks]
    result = summarised(asked, records, protocol())
    overall = result["overall"]
    videos = [str(number // 3) for number in range(240)]
    wanted = share_interval(mean_by_video([number % 5 != 0 for number in range(240)], videos))
    assert (overall["videos"], overall["accuracy"]) == (80, 0.8)
    assert overall["intervals"]["accuracy"] == pytest.approx(wanted, abs=1e-6)
    assert overall["intervals"]["share"] == pytest.approx(wanted, abs=1e-6)
    low, high = overall["intervals"]["gain"]  # of the same width to both sides, unlike that of a share
    assert low < -0.2 < high and low + high == pytest.approx(-0.4, abs=2e-6)
    for group in result["groups"]["kind"].values():
        assert group["videos"] == 40
        assert group["intervals"]["accuracy"][0] < group["accuracy"] < group["intervals"]["accuracy"][1]
        assert group["intervals"]["accuracy"][0] < overall["intervals"]["accuracy"][0], "fewer videos say less"


def test_a_group_of_few_videos_has_none() -> None:
    asked = questions(50, 2, Made())
    result = summarised(asked, [record(task, True) for task in asked.tasks], protocol())
    assert result["overall"]["intervals"]["accuracy"] is not None
    group = result["groups"]["kind"]["odd"]
    assert (group["videos"], group["items"]) == (25, 50)
    assert group["intervals"] == dict.fromkeys(("accuracy", "partial", "share", "gain"))


def test_parts_of_a_file_are_one_video(tmp_path: Path) -> None:
    """Each question has a part of its own, as clips have: 20 files with three each are too few for an interval."""
    asked = questions(20, 3, Made())
    for number, task in enumerate(asked.tasks):
        info = task.row["extra_info"]
        info["video_path"] = clip_path(info["video_path"], number, number + 1)
    records = [record(task, int(task.uid) % 2 == 0) for task in asked.tasks]
    overall = write_result(tmp_path / "run", asked, records)["overall"]
    assert (overall["items"], overall["videos"]) == (60, 20)
    assert overall["intervals"] == dict.fromkeys(("accuracy", "partial", "share", "gain"))
    assert len({line["video"] for line in read_items(tmp_path / "run")}) == 20
    assert len({line["item"] for line in read_items(tmp_path / "run")}) == 60


def test_videos_of_one_name_in_folders_of_their_own_are_several(tmp_path: Path) -> None:
    asked = questions(40, 2, Made())
    for number, task in enumerate(asked.tasks):
        task.row["extra_info"]["video_path"] = f"{number // 2:04}/video.mp4"
    write_result(tmp_path / "run", asked, [record(task, int(task.uid) % 2 == 0) for task in asked.tasks])
    assert len({line["video"] for line in read_items(tmp_path / "run")}) == 40


def test_the_order_of_rollouts_changes_nothing() -> None:
    asked = questions(40, 3, Made(), repeats=2)
    records = [record(task, (int(task.uid) * 7 + task.session_id) % 3 != 0) for task in asked.tasks]
    whole = json.dumps(summarised(asked, records, protocol()))
    random.Random(0).shuffle(records)
    assert json.dumps(summarised(asked, records, protocol())) == whole


def test_an_item_counts_as_the_mean_of_its_times() -> None:
    """Item 0 is right in 1 of 3, item 1 in the one time that did not fail, item 2 never failed to fail."""
    asked = questions(3, 1, repeats=3)
    failed = {"flags": [JUDGE_FLAG], "error": "none"}
    records = []
    for task in asked.tasks:
        made = record(task, (task.uid, task.session_id) in {("0", 2), ("1", 1)})
        if task.uid == "2" or (task.uid == "1" and task.session_id != 1):
            made["trajectory"].flags, made["trajectory"].error = [JUDGE_FLAG], failed["error"]
        records.append(made)
    result = summarised(asked, records, protocol())
    overall = result["overall"]
    assert (overall["items"], overall["failed"], overall["accuracy"]) == (3, 1, pytest.approx((1 / 3 + 1) / 2))
    assert result["repeats"]["accuracy"] == [0.0, 0.5, 1.0]
    assert (result["repeats"]["mean"], result["repeats"]["standard_deviation"]) == (0.5, 0.5)
    assert [(each["item"], each["repeat"]) for each in result["failures"]] == [
        ("row 1 (index 1)", 0),
        ("row 1 (index 1)", 2),
        *(("row 2 (index 2)", repeat) for repeat in range(3)),
    ]


def test_repeats_of_an_item_are_no_further_videos() -> None:
    once, thrice = questions(40, 2), questions(40, 2, repeats=3)
    results = [
        summarised(asked, [record(task, int(task.uid) % 3 != 0) for task in asked.tasks], protocol())
        for asked in (once, thrice)
    ]
    assert results[0]["overall"] == results[1]["overall"]


class Joined(Made):
    """With a metric that joins the items of a video: all of them right."""

    def metrics(self, items: Sequence[GradedItem]) -> dict[str, float]:
        wrong = {item.sample.video_path for item in items if item.label is not AnswerLabel.CORRECT}
        return {"all": 1 - len(wrong) / len({item.sample.video_path for item in items})}


def test_a_metric_joins_items_of_one_time_alone() -> None:
    """Each of two times has all right in one half of the videos, and in none of them both times."""
    asked = questions(40, 2, Joined(), repeats=2)
    records = [record(task, (int(task.uid) // 2 + task.session_id) % 2 == 0) for task in asked.tasks]
    overall = summarised(asked, records, protocol())["overall"]
    assert overall["all"] == 0.5
    low, high = overall["intervals"]["all"]
    assert low < 0.5 < high


def rollout(*calls: tuple[str, dict[str, Any], bool]) -> Trajectory:
    turns = [Turn("", calls=[CallRecord(name, arguments, ok=ok)]) for name, arguments, ok in calls]
    return Trajectory("made", "?", turns=[*turns, Turn("A")])


def test_rates_by_tool_and_class() -> None:
    zooms = [("zoom", {"fps": fps}, True) for fps in (0.5, 1, 1.5, 2, 8, 30)]
    rollouts = [
        rollout(*zooms, ("search", {"query": "?"}, True)),
        rollout(("zoom", {"fps": 4}, False)),  # refused: it has not looked
        rollout(("search", {"fps": "2"}, True), ("search", {"fps": 0}, True)),
        rollout(),
    ]
    assert call_figures(rollouts, ["active", "active", "direct", None]) == {
        "share": 0.5,
        "by_tool": {"search": 0.5, "zoom": 0.25},
        "by_class": {"active": 0.5, "direct": 1.0},
    }


def test_without_calls_there_are_no_rates() -> None:
    assert call_figures([rollout(), rollout()], ["active", None]) == {}
    assert call_figures([rollout(("search", {}, True))], [None]) == {"share": 1.0, "by_tool": {"search": 1.0}}
