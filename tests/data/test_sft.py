"""Export of cold-start rows: what is executed, kept, dropped, written."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.turns.framethinker import answer
from verl_video_tools.cli.main import data_app as app
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Sample, StopReason
from verl_video_tools.data.sft import execute, export_sft, scripted_oracle, write_sft_rows
from verl_video_tools.data.synthetic_rows import load_rows, make_demo, question_from_row
from verl_video_tools.methods import get_method
from verl_video_tools.methods.framethinker.oracle import FrameThinkerOracle
from verl_video_tools.methods.toolkit.oracle import Habits, Script, ScriptedOracle

METHOD = get_method("framethinker")


class Fixed:
    """An expert with one script for every question."""

    def __init__(self, *turns: str) -> None:
        self._script = Script("A", turns)

    def script(self, spec: Any, question: Any) -> Script:
        return self._script


@pytest.mark.slow
def test_perfect_rollouts_are_all_kept(demo_dir: Path, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "new" / "sft.parquet"
    report = export_sft(demo_dir / "train.parquet", out, seed=5)
    assert report.kept.total() == len(rows)
    assert report.dropped.total() == 0
    written = pq.read_table(out).to_pylist()
    expert = FrameThinkerOracle(seed=5)
    for row, new in zip(rows, written, strict=True):
        script = expert.script(*question_from_row(row))
        assert new == {**row, "turns": list(script.turns), "template": script.template}


def test_habits_that_are_handed_on_are_all_that_experts_have() -> None:
    assert {"seed", *Habits.__annotations__} == {field.name for field in fields(ScriptedOracle)}
    with pytest.raises(TypeError, match="imperfections"):
        scripted_oracle(METHOD, imperfections=0.5)  # type: ignore[call-arg]  # a type checker tells as well


@pytest.fixture(scope="module")
def imperfect_rows(demo_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("imperfect") / "sft.parquet"
    report = export_sft(demo_dir / "train.parquet", out, imperfection=0.5)
    assert report.dropped["wrong answer"] > 0
    return pq.read_table(out).to_pylist()


async def test_kept_rollouts_are_right_and_consistent(imperfect_rows: list[dict[str, Any]]) -> None:
    for row in imperfect_rows:
        sample = Sample.from_row(row)
        trajectory = await execute(METHOD, sample, row["turns"])
        reward = await METHOD.score(trajectory, sample)
        assert (reward["accuracy"], reward["ccv"]) == (1.0, 1.0)
        assert len(trajectory.turns) == len(row["turns"])


def test_wrong_answers_are_dropped_unless_asked_for(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    truths = [row["reward_model"]["ground_truth"] for row in rows]
    report = write_sft_rows(rows, Fixed(answer("B")), tmp_path / "a.parquet", method=METHOD)
    assert report.kept == {"A": truths.count("B")}
    assert report.dropped == {"wrong answer": len(rows) - truths.count("B")}
    assert str(report) == f"kept {truths.count('B')} (A: {truths.count('B')}), dropped " + (
        f"{len(rows) - truths.count('B')} (wrong answer: {len(rows) - truths.count('B')})"
    )
    report = write_sft_rows(rows, Fixed(answer("B")), tmp_path / "b.parquet", method=METHOD, keep_wrong=True)
    assert report.kept.total() == len(rows)
    assert pq.read_table(tmp_path / "b.parquet").num_rows == len(rows)


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        (("I give up",), "no_action"),
        (("<think>a</think><action>choose frames between 50 and 20</action>", answer("A")), "invalid_action"),
        (("<think>between 5 and 50</think><action>choose frames between 5 and 50</action>",), "script_exhausted"),
        (("<think>over there</think><action>choose frames between 5 and 50</action>", answer("A")), "inconsistent"),
    ],
)
def test_bad_rollouts_are_never_kept(
    rows: list[dict[str, Any]], tmp_path: Path, turns: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(RowError, match=f"{reason}: 4"):
        write_sft_rows(rows[:4], Fixed(*turns), tmp_path / "sft.parquet", method=METHOD, keep_wrong=True)
    assert not (tmp_path / "sft.parquet").exists()


async def test_execute_records_an_unfinished_script(rows: list[dict[str, Any]]) -> None:
    trajectory = await execute(METHOD, Sample.from_row(rows[0]), [])
    assert trajectory.stop_reason is StopReason.SCRIPT_EXHAUSTED


def test_rows_of_another_origin_are_refused(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    foreign = {**rows[0], "extra_info": {k: v for k, v in rows[0]["extra_info"].items() if k != "demo"}}
    with pytest.raises(RowError, match="index=0: not a row of the synthetic world"):
        write_sft_rows([foreign], Fixed(answer("A")), tmp_path / "sft.parquet", method=METHOD)


def test_unusable_sources_are_refused(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read rows"):
        export_sft(tmp_path / "nothing.parquet", tmp_path / "sft.parquet")
    pq.write_table(pa.Table.from_pylist([{**rows[0], "agent_name": "other"}]), tmp_path / "other.parquet")
    with pytest.raises(UsageError, match="has other"):
        export_sft(tmp_path / "other.parquet", tmp_path / "sft.parquet")


def test_settings_reach_method_and_expert(demo_dir: Path, tmp_path: Path) -> None:
    """With 12 frames per look the ten frames after a time are too few, so rollouts of template C end on an error."""
    report = export_sft(demo_dir / "train.parquet", tmp_path / "sft.parquet", settings={"call_frames": 12})
    assert report.dropped["invalid_action"] > 0
    assert "C" not in report.kept


def test_only_the_kinds_asked_for_are_written(demo_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "sft.parquet"
    export_sft(demo_dir / "train.parquet", out, questions_per_video=6, kinds=("at_time", "direct"))
    assert {question_from_row(row)[1].kind for row in load_rows(out)} == {"at_time", "direct"}


def test_fresh_questions_about_the_same_videos(demo_dir: Path, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    report = export_sft(demo_dir / "train.parquet", tmp_path / "sft.parquet", questions_per_video=6)
    assert report.kept.total() == 60
    written = pq.read_table(tmp_path / "sft.parquet").to_pylist()
    asked = {(row["extra_info"]["video_path"], row["extra_info"]["question"]) for row in written}
    assert len(asked) == 60
    assert {path for path, _ in asked} == {row["extra_info"]["video_path"] for row in rows}
    known = {(row["extra_info"]["video_path"], row["extra_info"]["question"]) for row in rows}
    assert len(asked & known) <= 2  # options are drawn anew: only by chance the same
    assert [row["extra_info"]["index"] for row in written] == list(range(60))
    assert {row["extra_info"]["split"] for row in written} == {"train"}


def test_fresh_questions_are_not_those_of_reinforcement_learning(
    demo_dir: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Also with the seed of the rows, 3, and as many questions: a policy would learn the answers, not to look."""
    export_sft(demo_dir / "train.parquet", tmp_path / "sft.parquet", questions_per_video=4, seed=3)
    fresh, known = (
        {(row["extra_info"]["video_path"], row["extra_info"]["question"]) for row in each}
        for each in (load_rows(tmp_path / "sft.parquet"), rows)
    )
    assert len(fresh) == len(known) == 40
    assert len(fresh & known) <= 1  # options are drawn anew: only by chance the same


def test_more_fresh_questions_than_a_video_allows(
    demo_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*_: object) -> None:
        raise ValueError("found only 3 different questions; ask for fewer")

    monkeypatch.setattr("verl_video_tools.data.sft.questions_about", too_many)  # the real search takes seconds to fail
    with pytest.raises(UsageError, match="ask for fewer"):
        export_sft(demo_dir / "train.parquet", tmp_path / "sft.parquet", questions_per_video=10_000)


def test_command_line(demo_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "sft.parquet"
    arguments = ["export-sft", str(demo_dir / "test.parquet"), str(out), "--imperfection", "0"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "kept 4 (" in result.stdout
    assert pq.read_table(out).num_rows == 4


def test_rows_are_not_written_to_a_folder(demo_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"cannot write {tmp_path}: it is a folder; name a file"):
        export_sft(demo_dir / "test.parquet", tmp_path)


def test_the_option_parser_imports_nothing_heavy() -> None:
    code = "import sys; import verl_video_tools.cli.main; sys.exit(bool({'torch', 'av', 'pyarrow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_rows_of_several_methods(tmp_path: Path) -> None:
    folder = make_demo(tmp_path, 1, 1, questions_per_video=3, agent_names=["framethinker", "longvt"], num_processes=1)
    assert [row["agent_name"] for row in load_rows(folder / "train.parquet")] == [
        "framethinker",
        "longvt",
        "framethinker",
    ]
    out = tmp_path / "sft.parquet"
    report = export_sft(folder / "train.parquet", out, questions_per_video=4, settings={"longvt.initial_frames": 8})
    rows = load_rows(out)
    assert Counter(row["agent_name"] for row in rows) == {"framethinker": 2, "longvt": 2} and report.kept.total() == 4
    for row in rows:
        assert ("<action>" in row["turns"][-1]) == (row["agent_name"] == "framethinker")
    for setting, message in (("zoomer.initial_frames", r"METHOD\.FIELD"), ("look_frames", "has no field")):
        with pytest.raises(UsageError, match=message):
            export_sft(folder / "train.parquet", out, settings={setting: 8})
