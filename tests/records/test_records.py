"""Records survive the file, step files appear whole, and the table at the end of a recipe is made of them."""

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.core.errors import CallError, CallErrorCode, UsageError
from verl_video_tools.core.types import CallRecord, FrameRecord, StopReason, Trajectory, Turn, VideoInfo
from verl_video_tools.records.best_effort import BestEffort
from verl_video_tools.records.records import (
    RecordWriter,
    archive_stale_records,
    has_steps,
    read_records,
    records_folder,
    run_folder,
    step_files,
    step_of,
)
from verl_video_tools.records.report import print_summary


def line(step: int, uid: str, score: float) -> dict:
    trajectory = Trajectory(
        method="framethinker",
        question="What is shown at 0:34? «ünïcode»",
        video=VideoInfo(10.0, 50, 5.0, 56, 56),
        initial_frames=[FrameRecord(0, 0.0, 56, 56)],
        turns=[Turn(text="<think>", calls=[CallRecord("choose_frames", {"start_frame": 1}, ok=True, latency_ms=1.5)])],
        stop_reason=StopReason.ANSWER,
    )
    return {"step": step, "uid": uid, "reward": {"score": score, "acc": score}, "trajectory": trajectory.to_dict()}


def test_round_trip_in_step_order(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path)
    writer.write(10, [line(10, "a", 0.0)])
    writer.write(2, [line(2, "a", 1.0), line(2, "a", 0.0)])
    records = list(read_records(tmp_path))
    assert [record["step"] for record in records] == [2, 2, 10]
    assert records[0]["trajectory"] == Trajectory.from_dict(line(2, "a", 1.0)["trajectory"])
    assert not list(tmp_path.glob("*.partial"))


def test_a_line_of_brackets_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "step_000001.jsonl").write_text("[" * 100_000 + "\n")
    with pytest.raises(UsageError, match=r"step_000001\.jsonl, line 1: not a recorded rollout"):
        list(read_records(tmp_path))


def test_half_a_surrogate_pair_survives_the_file(tmp_path: Path) -> None:
    RecordWriter(tmp_path).write(1, [{**line(1, "a", 0.0), "extra_info": {"question": "\ud83d"}}])
    (record,) = read_records(tmp_path)
    assert record["extra_info"] == {"question": "\ud83d"}


def test_summary_compares_first_and_last_step(tmp_path: Path, capsys) -> None:
    writer = RecordWriter(tmp_path)
    writer.write(1, [line(1, "a", 0.0), line(1, "a", 0.0)])
    writer.write(2, [line(2, "a", 1.0), line(2, "a", 0.0)])
    print_summary(tmp_path)
    printed = capsys.readouterr().out
    assert (
        "step 1" in printed
        and "step 2" in printed
        and "0.500" in printed
        and str(tmp_path) in printed.replace("\n", "")
    )


def test_summary_counts_rollouts_about_incomplete_videos(tmp_path: Path, capsys) -> None:
    rollout = line(1, "a", 0.0)
    rollout["trajectory"]["video"]["missing_bytes"] = 1000
    RecordWriter(tmp_path).write(1, [rollout, line(1, "a", 0.0)])
    print_summary(tmp_path)
    assert "1 rollouts are about videos whose end is missing" in capsys.readouterr().out


def test_validation_records_stay_apart(tmp_path: Path) -> None:
    RecordWriter(tmp_path).write(1, [line(1, "a", 0.0)])
    (tmp_path / "val_step_000001.jsonl").write_text("not read")
    assert [record["uid"] for record in read_records(tmp_path)] == ["a"]
    assert [path.name for path in step_files(tmp_path, validation=True)] == ["val_step_000001.jsonl"]


def test_a_run_is_its_folder_or_that_of_its_records(tmp_path: Path) -> None:
    run, records = tmp_path, tmp_path / "trajectories"
    assert records_folder(run) == run
    records.mkdir()
    assert records_folder(run) == records and not has_steps(records), "where its first step will be written"
    RecordWriter(run).write(1, [line(1, "beside", 0.0)])
    assert records_folder(run) == run
    RecordWriter(records).write(1, [line(1, "below", 0.0)], validation=True)
    assert records_folder(run) == records_folder(records) == records
    RecordWriter(records).write(1, [line(1, "below", 0.0)])
    assert [record["uid"] for record in read_records(run)] == [record["uid"] for record in read_records(records)]
    for path in (run, records, records / "step_000001.jsonl"):
        assert run_folder(path) == run


def test_records_of_steps_that_are_trained_again_are_set_aside(tmp_path: Path) -> None:
    """They stayed, and were taken for the run's last steps."""
    writer = RecordWriter(tmp_path)

    def write(name: str, steps: list[int], rounds: list[int]) -> None:
        for step in steps:
            writer.write(step, [line(step, name, 0.0)])
        for step in rounds:
            writer.write(step, [line(step, name, 0.0)], validation=True)

    write("first start", [1, 2, 3, 4, 10], [0, 2, 4])
    (tmp_path / "step_of_mine.jsonl").touch()
    folder = tmp_path / "abandoned_1"
    assert archive_stale_records(tmp_path, 2) == (4, folder)
    moved = sorted(path.name for path in folder.iterdir())
    assert moved == ["step_000003.jsonl", "step_000004.jsonl", "step_000010.jsonl", "val_step_000004.jsonl"]
    assert [step_of(path) for path in step_files(tmp_path)] == [1, 2, -1]
    assert [step_of(path) for path in step_files(tmp_path, validation=True)] == [0, 2], "of the policy that goes on"
    assert archive_stale_records(tmp_path, 2) is None and not (tmp_path / "abandoned_2").exists()

    write("second start", [3], [])
    assert archive_stale_records(tmp_path, 2) == (1, tmp_path / "abandoned_2")
    assert [record["uid"] for record in read_records(folder) if record["step"] == 3] == ["first start"]
    assert {record["step"] for record in read_records(tmp_path)} == {1, 2}, "no reader looks into these folders"
    assert archive_stale_records(tmp_path / "of a new run", 0) is None


def test_summary_of_fine_tuning_is_from_verls_log(tmp_path: Path, capsys) -> None:
    first = [{"step": 1, "data": {"train/loss": 2.5, "train/lr": 1e-5}}, {"step": 2, "data": {"train/loss": 9.0}}]
    resumed = [{"step": 2, "data": {"train/loss": 0.5, "train/lr": 0.0, "val/loss": 0.75}}, {"step": 3, "data": {}}]
    for name, lines in (("metrics_1.jsonl", first), ("metrics_2.jsonl", resumed)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    print_summary(tmp_path)
    shown = capsys.readouterr().out
    rows = {cells[0]: cells[1:] for line in shown.splitlines() if len(cells := re.split(r" *[|] *", line)[1:-1]) > 1}
    assert shown.startswith("2 steps")
    assert rows["fine-tuning"] == ["step 1", "step 2"]
    assert rows["loss"] == ["2.500", "0.500"] and rows["validation loss"] == ["-", "0.750"]
    assert rows["learning rate"] == ["1.0e-05", "0.000"]


def test_summary_of_fine_tuning_leaves_out_what_is_trained_again(tmp_path: Path, capsys: Any) -> None:
    """A start that resumed at step 1, and has come to step 2; the former had come to step 4."""
    for name, losses in (("metrics_1.jsonl", {1: 4.0, 2: 3.0, 4: 1.0}), ("metrics_2.jsonl", {2: 3.5})):
        lines = [json.dumps({"step": step, "data": {"train/loss": loss}}) + "\n" for step, loss in losses.items()]
        (tmp_path / name).write_text("".join(lines))
    print_summary(tmp_path)
    shown = capsys.readouterr().out
    assert shown.startswith("2 steps") and "3.500" in shown and "1.000" not in shown


@pytest.mark.parametrize("folder", ["", "trajectories"])
def test_summary_takes_a_runs_folder_or_that_of_its_records(folder: str, tmp_path: Path, capsys) -> None:
    RecordWriter(tmp_path / "trajectories").write(3, [line(3, "a", 0.5)])
    print_summary(tmp_path / folder)
    shown = capsys.readouterr().out
    assert shown.startswith("1 steps") and f"{tmp_path.resolve()}/trajectories/step_*.jsonl" in shown


def test_summary_of_an_empty_folder_says_so(tmp_path: Path, capsys) -> None:
    print_summary(tmp_path)
    assert "no recorded step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("out_of_range: start: 9 s", "out_of_range", "start: 9 s"),
        ("malformed_call: ", "malformed_call", ""),
        ("code_of_another_version: why", "code_of_another_version", "why"),
        ("no code", "", "no code"),
        (": no code", "", ": no code"),
        ("http://host:80", "", "http://host:80"),
    ],
)
def test_a_calls_error_is_written_as_it_was_read(text: str, code: str, message: str) -> None:
    written = line(1, "a", 0.0)["trajectory"]
    written["turns"][0]["calls"][0] |= {"ok": False, "error": text}
    trajectory = Trajectory.from_dict(written)
    error = trajectory.calls()[0].error
    assert error == CallError(code, message)
    assert isinstance(error.code, CallErrorCode) == (code in {"out_of_range", "malformed_call"})
    assert trajectory.to_dict() == written


def test_a_full_disk_costs_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended training for a log file. Told once, counted, tried again."""
    write, full = RecordWriter.write, [True]

    def failing(self: RecordWriter, *arguments: Any, **options: Any) -> Path:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, *arguments, **options)

    monkeypatch.setattr(RecordWriter, "write", failing)
    write_records = BestEffort(RecordWriter(tmp_path).write, "writing records", "records/failures", max_pending=2)
    for step in (1, 2, 3):
        write_records(step, [line(step, "a", 0.0)])
    assert write_records.num_failures == 6, "one of step 1, two of step 2 with it again, three of step 3"
    assert len(caplog.messages) == 1 and "failed: writing records; training goes on" in caplog.messages[0]
    assert "No space left" in caplog.text
    full[0] = False
    write_records(4, [line(4, "a", 0.0)], validation=True)
    assert [path.name for path in step_files(tmp_path)] == ["step_000002.jsonl", "step_000003.jsonl"]
    assert [path.name for path in step_files(tmp_path, validation=True)] == ["val_step_000004.jsonl"]
