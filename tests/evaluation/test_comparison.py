"""`vvt eval-table`: paired differences of runs that share items."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.evaluation.made_results import questions, record, write_result
from verl_video_tools.cli.main import run
from verl_video_tools.core.files import write_lines
from verl_video_tools.evaluation.items import ITEMS, read_items

pytestmark = pytest.mark.slow


def write_run(folder: Path, wrong: set[int], num_videos: int = 40, first: int = 0, videos: str = "videos") -> Path:
    """Three questions about each video, from question `first` on."""
    asked = questions(num_videos, 3)
    records = []
    for task in asked.tasks[first:]:
        made = record(task, int(task.uid) not in wrong)
        path = made["extra_info"]["video_path"].replace("videos", videos)
        records.append({**made, "extra_info": {**made["extra_info"], "video_path": path}})
    write_result(folder, asked, records)
    return folder


def test_runs_are_paired_by_item(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second run has its videos elsewhere, and lacks the first ten videos."""
    before = write_run(tmp_path / "before", wrong=set(range(0, 120, 2)))
    after = write_run(tmp_path / "after", wrong=set(range(0, 120, 6)) | {31}, first=30, videos="moved")
    assert run(["eval-table", str(before), str(after), f"--out={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "table.md").read_text() + "\n"
    (line,) = json.loads((tmp_path / "paired.json").read_text())
    assert (line["result"], line["minus"]) == ("after", "before")
    counts = ("shared_items", "only_in_result", "only_in_minus", "videos", "better", "worse")
    assert [line[name] for name in counts] == [90, 0, 30, 30, 30, 1]
    assert line["difference"] == pytest.approx(29 / 90)
    low, high = line["interval"]
    assert 0 < low < line["difference"] < high < 1
    assert line["p_value"] == pytest.approx(5e-5), "the smallest with 9999 permutations"
    difference = f"32.2 [{100 * low:.1f}, {100 * high:.1f}]"
    assert f"| after | before | accuracy | 90 | 0 | 30 | 30 | 30 | 1 | {difference} | < 0.001 |" in printed


def test_few_videos_are_said_to_be_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(write_run(tmp_path / name, wrong={number}, num_videos=5)) for number, name in enumerate("ab")]
    assert run(["eval-table", *folders, f"--out={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "| b | a | accuracy | 15 | 0 | 0 | 5 | 1 | 1 | 0.0 [too few] | - |" in printed


def test_runs_without_scatter_tell_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All items wrong in both: [0, 0] would say that the runs are known to be equal."""
    folders = [str(write_run(tmp_path / name, wrong=set(range(120)))) for name in "ab"]
    assert run(["eval-table", *folders, f"--out={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "| b | a | accuracy | 120 | 0 | 0 | 40 | 0 | 0 | 0.0 | 1.000 |" in printed
    assert json.loads((tmp_path / "paired.json").read_text())[0]["interval"] is None


def test_runs_on_other_questions_share_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = write_run(tmp_path / "one", wrong=set()), write_run(tmp_path / "other", wrong=set())
    (other / "items.jsonl").write_text((other / "items.jsonl").read_text().replace('{"item": "', '{"item": "x'))
    assert run(["eval-table", str(one), str(other), f"--out={tmp_path}"]) == 0
    assert "| other | one | accuracy | 0 | 120 | 120 | 0 | 0 | 0 | - | - |" in capsys.readouterr().out


def test_published_verdicts_are_compared_where_both_runs_have_them(tmp_path: Path) -> None:
    """Ours call item 0 wrong in the first run alone; the published ones call five more of it wrong."""
    folders = [write_run(tmp_path / name, wrong=wrong) for name, wrong in (("a", {0}), ("b", set()), ("c", set()))]
    for folder, wrong in zip(folders[:2], (6, 0), strict=True):
        lines = read_items(folder)
        for number, line in enumerate(lines):
            line["label_published"] = "incorrect" if number < wrong else "correct"
        write_lines(folder / ITEMS, lines)
    assert run(["eval-table", *map(str, folders), f"--out={tmp_path}"]) == 0
    found = json.loads((tmp_path / "paired.json").read_text())
    better = {(line["result"], line["minus"], line["figure"]): line["better"] for line in found}
    assert better == {
        ("b", "a", "accuracy"): 1,
        ("c", "a", "accuracy"): 1,
        ("c", "b", "accuracy"): 0,
        ("b", "a", "accuracy_published"): 6,
    }


def test_results_without_items_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [write_run(tmp_path / name, wrong=set()) for name in "ab"]
    (folders[1] / "items.jsonl").unlink()
    line = ["eval-table", *map(str, folders), f"--out={tmp_path}", "--overwrite"]
    assert run(line) == 2
    told = capsys.readouterr().err
    assert "cannot read items from" in told and "repeat the `vvt eval` command" in told
    (folders[1] / "items.jsonl").write_text("[]\n")
    assert run(line) == 2
    assert "cannot read items from" in capsys.readouterr().err


def test_questions_of_the_same_words_stay_apart(tmp_path: Path) -> None:
    asked = questions(2, 2)
    for task in asked.tasks:
        task.row["extra_info"]["question"] = "The same?"
    write_result(tmp_path / "run", asked, [record(task, True) for task in asked.tasks])
    keys = [line["item"] for line in read_items(tmp_path / "run")]
    assert len(set(keys)) == 4 and [key.rpartition("-")[2] for key in keys] == ["0", "1", "0", "1"]
