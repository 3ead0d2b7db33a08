"""Intervals in `results.json`, for all items, groups and metrics; items that are asked several times."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.made_results import protocol, questions, record, summarised, write_result
from verl_video_tools.core.sample import clip_path
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.core.types import CallRecord, Sample, Turn
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, Row
from verl_video_tools.evaluation.items import read_items
from verl_video_tools.evaluation.statistics import mean_by_video, share_interval


class Made(Benchmark):
    """With a metric of each answer, and the mean of its groups."""

    name = "made"
    groupings = ("kind",)
    group_mean = ("kind_mean", "kind")

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        raise NotImplementedError("its items are made here, and not read from a file")

    def metrics(self, sample: Sample, answer: str | None) -> dict[str, float]:
        return {"share": float(answer == sample.ground_truth)}


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
    assert (overall["kind_mean"], overall["share"]) == pytest.approx((0.8, 0.8))
    low, high = overall["intervals"]["kind_mean"]
    assert low < 0.8 < high
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
    assert group["intervals"] == dict.fromkeys(("accuracy", "partial", "share", "kind_mean"))


def test_parts_of_a_file_are_one_video(tmp_path: Path) -> None:
    """Each question has a part of its own, as clips have: 20 files with three each are too few for an interval."""
    asked = questions(20, 3, Made())
    for number, task in enumerate(asked.tasks):
        info = task.row["extra_info"]
        info["video_path"] = clip_path(info["video_path"], number, number + 1)
    records = [record(task, int(task.uid) % 2 == 0) for task in asked.tasks]
    overall = write_result(tmp_path / "run", asked, records)["overall"]
    assert (overall["items"], overall["videos"]) == (60, 20)
    assert overall["intervals"] == dict.fromkeys(("accuracy", "partial", "share", "kind_mean"))
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


def test_rates_by_tool_and_class() -> None:
    zooms = [("zoom", True)] * 6
    calls = [
        [*zooms, ("search", True)],
        [("zoom", False)],  # refused: it has not looked
        [("search", True), ("search", True)],
        [],
    ]
    assert call_figures(calls, ["active", "active", "direct", None]) == {
        "share": 0.5,
        "by_tool": {"search": 0.5, "zoom": 0.25},
        "by_class": {"active": 0.5, "direct": 1.0},
    }


def test_without_calls_there_are_no_rates() -> None:
    assert call_figures([[], []], ["active", None]) == {}
    assert call_figures([[("search", True)]], [None]) == {"share": 1.0, "by_tool": {"search": 1.0}}


def call_figures(calls: list[list[tuple[str, bool]]], classes: list[str | None]) -> Any:
    """Of rollouts with these calls (tool, executed) on questions of these classes."""
    asked = questions(len(calls), 1)
    records = []
    for task, made, name in zip(asked.tasks, calls, classes, strict=True):
        task.row["extra_info"]["classification"] = name
        records.append(record(task, True))
        turns = [Turn("", calls=[CallRecord(tool, {}, ok=ok)]) for tool, ok in made]
        records[-1]["trajectory"].turns = [*turns, Turn("A")]
    return summarised(asked, records, protocol())["calls"]
