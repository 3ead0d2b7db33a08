"""Recorded rollouts as a log of Inspect. The structure is that which inspect_ai 0.3.285 reads and shows."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data.test_export_hf import record_run
from tests.records.test_html_regions import with_parts
from tests.videos.files import MakeVideo
from tests.viewer_page import line
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import StopReason, Turn
from verl_video_tools.data.export_hf import export_hf
from verl_video_tools.data.export_inspect import export_inspect
from verl_video_tools.records.records import RecordWriter


def exported(folder: Path, logs: Path, **options: Any) -> dict[str, Any]:
    path, _, _ = export_inspect(folder, logs, **options)
    return json.loads(path.read_text())


def texts(message: dict[str, Any]) -> list[str]:
    return [part["text"] for part in message["content"] if part["type"] == "text"]


def images(message: dict[str, Any]) -> list[tuple[int, int]]:
    """Sizes of a message's pictures."""
    urls = [part["image"] for part in message["content"] if part["type"] == "image"]
    assert all(url.startswith("data:image/jpeg;base64,") for url in urls)
    return [Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).size for url in urls]


def test_a_rollout_is_a_sample(tmp_path: Path, make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    recorded = with_parts(path)
    recorded["trajectory"].turns[0].reasoning = "hm"
    recorded["trajectory"].turns[0].calls[0].text = "two parts"
    log = exported(record_run(tmp_path / "run", {3: [recorded]}), tmp_path / "logs", model="m")
    (sample,) = log["samples"]
    assert (sample["id"], sample["epoch"], sample["target"]) == ("step 3, group-1", 1, "B")
    assert sample["scores"]["acc"] == {"value": 1.0, "answer": "B"} and sample["scores"]["format"]["value"] == 0.5
    assert "judge_calls" not in sample["scores"]
    about = sample["metadata"]
    assert (about["step"], about["method"], about["stop_reason"], about["advantage"]) == (3, "longvt", "answer", 0.25)

    question, said, looked, refused, answer = sample["messages"]
    assert sample["input"] == [question] and question["role"] == "user"
    assert texts(question) == ["What is shown?", *(f"\nframe {n}, {n / 5:.2f} s:" for n in (0, 25, 49))]
    assert images(question) == [(64, 36)] * 3
    assert said["role"] == "assistant"
    assert said["content"] == [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "text", "text": "<think>look</think>"},
    ]
    assert [(call["function"], call["arguments"]) for call in said["tool_calls"]] == [
        ("crop_video", {"start_time": 2.0}),
        ("crop_video", {"start_time": 99.0}),
    ]
    assert [call["id"] for call in said["tool_calls"]] == [looked["tool_call_id"], refused["tool_call_id"]]
    assert texts(looked)[:2] == ["2.0s <image>", "two parts"] and "error" not in looked
    assert images(looked) == [(32, 18), (32, 27)] + [(64, 36)] * 3
    assert refused["content"] == []
    assert refused["error"] == {"type": "unknown", "message": "out_of_range: beyond the end"}
    assert answer["content"] == [{"type": "text", "text": "B"}]
    assert sample["output"] == {"model": "m", "choices": [{"message": answer, "stop_reason": "stop"}]}


def test_groups_are_epochs_and_scores_have_means(tmp_path: Path) -> None:
    cut = line(1, score=0.5, stop=StopReason.RESPONSE_BUDGET, text="cut \ud83d")
    cut["trajectory"].turns = [Turn("cut \ud83d", truncated=True)]
    infinite = line(0, score=float("nan")) | {"uid": "group-2", "ground_truth": ["a", 1]}
    alone = line() | {"uid": None, "ground_truth": None}
    alone["trajectory"].turns = []
    log = exported(record_run(tmp_path / "run", {3: [line(0), cut, infinite, alone]}), tmp_path / "logs")
    # Inspect reads a log from its beginning until it knows these.
    assert list(log)[-1] == "samples" and {"version", "status", "eval", "plan", "results", "stats"} < set(log)
    assert [(sample["id"], sample["epoch"]) for sample in log["samples"]] == [
        ("step 3, group-1", 1),
        ("step 3, group-1", 2),
        ("step 3, group-2", 1),
        ("rollout 3", 1),
    ]
    assert log["eval"]["dataset"] == {
        "name": "run",
        "samples": 3,
        "sample_ids": ["step 3, group-1", "step 3, group-2", "rollout 3"],
    }
    assert {"created", "task", "model", "config", "eval_id", "run_id", "task_id"} < set(log["eval"])
    assert log["eval"]["config"] == {"epochs": 2} and log["eval"]["model"] == log["eval"]["task"] == "run"
    means = {score["name"]: score["metrics"]["mean"]["value"] for score in log["results"]["scores"]}
    assert means["acc"] == 1.0 and means["score"] == pytest.approx(2.5 / 3), "what is no number has no score"
    assert "score" not in log["samples"][2]["scores"]
    assert log["samples"][1]["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert texts(log["samples"][1]["messages"][1]) == ["cut ?"]
    assert log["samples"][2]["target"] == ["a", "1"] and log["samples"][3]["target"] == ""
    assert log["samples"][3]["output"]["choices"] == []


def alone_and_compared() -> tuple[dict[str, Any], dict[str, Any]]:
    """A held-out rollout and a trained one of a method that pays `curiosity` by comparison with the group."""
    held_out, trained = line(0, method="compose") | {"advantage": None}, line(1, method="compose")
    for recorded, curiosity in ((held_out, 0.0), (trained, 0.5)):
        recorded["trajectory"].made_of = {"rewards": ["accuracy", "curiosity"], "group_rewards": ["curiosity"]}
        recorded["reward"] |= {"curiosity": curiosity}
    return held_out, trained


def test_what_was_not_scored_is_no_score(tmp_path: Path) -> None:
    """It stood there as 0, and lowered the mean."""
    log = exported(record_run(tmp_path / "run", {3: list(alone_and_compared())}), tmp_path / "logs")
    held_out, trained = (sample["scores"] for sample in log["samples"])
    assert "curiosity" not in held_out and held_out["accuracy"]["value"] == 1.0
    assert trained["curiosity"]["value"] == 0.5
    means = {score["name"]: score["metrics"]["mean"]["value"] for score in log["results"]["scores"]}
    assert means["curiosity"] == 0.5


def test_of_a_rollout_that_was_made_again_the_last_counts(tmp_path: Path) -> None:
    """As in the file of an evaluation that was resumed, to which what had failed was appended again."""
    failed, other, again = line(0, score=0.0), line(1, score=1.0), line(0, score=1.0)
    path = RecordWriter(tmp_path).write(3, [failed, other, again]).rename(tmp_path / "rollouts.jsonl")
    log = exported(path, tmp_path / "logs")
    assert [sample["scores"]["acc"]["value"] for sample in log["samples"]] == [1.0, 1.0]
    report = export_hf(path, tmp_path / "hf", images=False)
    assert report.num_rollouts == {"train": 2}
    rows = pq.read_table(tmp_path / "hf" / "data" / "train-00000.parquet").to_pylist()
    assert [row["accuracy"] for row in rows] == [1.0, 1.0]


def test_of_more_rollouts_the_last_steps_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = record_run(tmp_path / "run", {step: [line(n) | {"step": step} for n in range(2)] for step in (1, 2, 3)})
    command = ["data", "export-inspect", str(run_dir), str(tmp_path / "logs"), "--max-rollouts", "4", "--no-images"]
    assert run(command) == 0
    (path,) = (tmp_path / "logs").iterdir()
    assert f"{path}: 4 rollouts, 2 left out (--max-rollouts)" in capsys.readouterr().out
    assert [sample["metadata"]["step"] for sample in json.loads(path.read_text())["samples"]] == [2, 2, 3, 3]
    before = path.read_bytes()
    assert run(command) == 2
    assert "exists; name another folder, or replace it with --overwrite" in capsys.readouterr().err
    assert run([*command, "--overwrite"]) == 0
    assert path.read_bytes() == before, "the same records give the same log"


def test_inspect_lists_a_log_by_its_name(tmp_path: Path) -> None:
    path, _, _ = export_inspect(record_run(tmp_path / "my_run 1", {3: [line()]}), tmp_path / "logs")
    time, task, id = path.stem.split("_")
    assert len(time) == len("2026-01-31T12-00-00+00-00") and task == "my-run-1" and id.isalnum()


def test_a_run_without_rollouts_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "export-inspect", str(tmp_path), str(tmp_path / "logs")]) == 2
    assert "no recorded rollout; give a run's folder" in capsys.readouterr().err
    assert not (tmp_path / "logs").exists()
