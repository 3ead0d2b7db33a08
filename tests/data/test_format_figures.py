"""Subtitles, groups, figures and rules of the published formats, on their samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.data.format_cases import CASES, Case, prepare
from tests.data.row_files import read_rows
from tests.evaluation.made_results import protocol, record, summarised
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import RowError
from verl_video_tools.core.types import AnswerLabel, Sample
from verl_video_tools.data.formats import Benchmark, get_source
from verl_video_tools.data.formats import read_rows as read_annotations
from verl_video_tools.data.generate import RolloutTask
from verl_video_tools.evaluation.questions import Questions
from verl_video_tools.grading.answers import decided_by_rule
from verl_video_tools.grading.segments import read_segment


def test_a_conversion_without_any_of_the_subtitles_asked_for_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [
        {"videoID": "v", "question_id": "1", "question": "?", "options": ["A. a", "B. b"], "answer": "A"}
        | dict.fromkeys(("duration", "domain", "sub_category", "task_type"), "x")
    ]
    (tmp_path / "v.mp4").touch()
    (tmp_path / "a.json").write_text(json.dumps(entries))
    folder, target = tmp_path / "subtitles", tmp_path / "rows.parquet"
    folder.mkdir()
    command = ["data", "convert", str(tmp_path / "a.json"), str(target), "--from", "video-mme"]
    command += ["--videos", str(tmp_path), "--subtitles", str(folder)]
    assert run(command) == 2
    told = capsys.readouterr().err
    assert (
        f"{folder}: holds subtitles of none of " in told
        and "named as `vvt list formats video-mme` says, or ask without" in told
    )
    assert not target.exists()
    (folder / "v.srt").write_text("1\n00:00:08,000 --> 00:00:09,000\nHere.\n")
    assert run(command) == 0
    num_rows = len(read_rows(target))
    assert f"{num_rows} rows, " in capsys.readouterr().out


def rows_of(name: str, tmp_path: Path) -> tuple[Benchmark, list[dict[str, Any]]]:
    case = CASES[name]
    benchmark, files = get_source(name), prepare(case, tmp_path)
    return benchmark, [row for _, row in read_annotations(benchmark, files) if not isinstance(row, RowError)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_rows_belong_to_the_groups_of_their_benchmark(case: Case, tmp_path: Path) -> None:
    benchmark, rows = rows_of(case.name, tmp_path)
    assert len(rows) == len(case.rows)
    for row in rows:
        groups = row["extra_info"].get("groups", {})
        # Records of LongVideo-Reason to train on have no category.
        assert tuple(groups) == benchmark.groupings or (not groups and case.name == "longvideo-reason")
        assert all(groups.values())


@pytest.mark.parametrize(
    ("name", "figure", "groups"),
    [
        ("mlvu-dev", "m_avg", [{"task": "plotQA"}, {"task": "count"}]),
        ("mvbench", "task_mean", [{"task": "action_sequence"}, {"task": "moving_count"}]),
        (
            "video-mmmu",
            "track_mean",
            [
                {"track": "Perception", "discipline": "Art"},
                {"track": "Adaptation", "discipline": "Business"},
                {"track": "Adaptation", "discipline": "Business"},
            ],
        ),
    ],
)
def test_means_of_groups(name: str, figure: str, groups: list[dict[str, str]], tmp_path: Path) -> None:
    """Each group counts alike: three right answers of the first and one of three of the last make two thirds."""
    benchmark, rows = rows_of(name, tmp_path)
    assert [row["extra_info"]["groups"] for row in rows] == groups
    tasks = [RolloutTask(str(number), 0, rows[0 if number < 3 else -1]) for number in range(6)]
    questions = Questions(name, tasks, {}, benchmark)
    records = [record(task, True, answer_label=AnswerLabel.CORRECT) for task in tasks]
    for number, made in enumerate(records):
        truth = tasks[number].row["reward_model"]["ground_truth"]
        made |= {"ground_truth": truth}
        made["trajectory"].answer = truth if number < 4 else None
    assert summarised(questions, records, protocol())["overall"][figure] == pytest.approx((1 + 1 / 3) / 2)


@pytest.mark.parametrize(
    ("answer", "segment"),
    [
        ("[2.5, 7]", (2.5, 7.0)),
        ("It happens from 2.5 to 7 seconds.", (2.5, 7.0)),
        ("2.5s - 7s", (2.5, 7.0)),
        ("between 0:02 and 1:07.5", (2.0, 67.5)),
        ("First [0, 1]; no, [2.5, 7].", (2.5, 7.0)),
        ("7 to 2.5", (7.0, 2.5)),
        ("**2.5** to **7.0**", (2.5, 7.0)),
        ("`2.5` - `7 s`", (2.5, 7.0)),
        (r"$\[2.5, 7\]$", (2.5, 7.0)),
        ("[.5, 7]", (0.5, 7.0)),
        ("from .5 s to 7", (0.5, 7.0)),
        ("It happens...5 to 7", (5.0, 7.0)),
        ("Answer:2.5 to 7.", (2.5, 7.0)),
        ("[2.5,7.0] (the clip lasts 20-30 s)", (2.5, 7.0)),
        ("[2.5 s, 7 s], not 1 to 3", (2.5, 7.0)),
        ("at 7 seconds", None),
        ("", None),
        (None, None),
    ],
)
def test_segments_in_answers(answer: str | None, segment: tuple[float, float] | None) -> None:
    assert read_segment(answer) == segment


def test_grounding(tmp_path: Path) -> None:
    """The truth is 2.4 to 9.1 s: overlaps of 1, 0.6, 0.4, and none."""
    benchmark, rows = rows_of("charades-sta", tmp_path)
    answers = ["[2.4, 9.1]", "[2.4, 6.42]", "[2.4, 5.08]", None]
    sample = Sample.from_row(rows[0])
    figures = [benchmark.metrics(sample, answer) for answer in answers]
    means = {name: sum(each[name] for each in figures) / len(figures) for name in figures[0]}
    assert means == pytest.approx({"R@0.3": 0.75, "R@0.5": 0.5, "R@0.7": 0.25, "mIoU": 0.5})
    verdicts = [decided_by_rule(answer, sample) for answer in answers]
    assert [verdict is AnswerLabel.CORRECT for verdict in verdicts] == [True, True, False, False]
