"""Rows of rollouts whose tools asked a model: replies are written, and read again in fine-tuning without that model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.talking_method import ANSWER, QUESTION, Talking, call
from tests.verl_plugin.harness import processor, tokenizer, video
from verl_video_tools import methods
from verl_video_tools.core.errors import CallErrorCode, CallRejected, RowError
from verl_video_tools.core.types import Sample, Trajectory
from verl_video_tools.data.export_rollouts import rows_of_records, table_of_rows
from verl_video_tools.methods.toolkit import AskModel
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy
from verl_video_tools.services.tool_model import ScriptedToolModel
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

ASKING = [call("ask_model", question="What is there?", time=1), call("ask_model", question="And?", time=2), ANSWER]


@pytest.fixture(autouse=True)
def talking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.REGISTERED, "talking", "tests.talking_method:Talking")
    monkeypatch.setattr(Talking, "more", {AskModel.name: AskModel()})


def line(turns: list[str], replies: list[str | Exception]) -> dict[str, Any]:
    """As the trainer writes it, and a reader gives it back."""
    extra_info = {"question": QUESTION, "question_type": "mc", "options": ["a hat", "a scarf"], "video_path": video()}
    sample = Sample.from_row({"extra_info": extra_info, "reward_model": {"ground_truth": "B"}})
    method = Talking(initial_frames=2)
    made = asyncio.run(Episode(method, sample, tool_model=ScriptedToolModel(replies)).run(ScriptedPolicy(turns)))
    return {
        "step": 1,
        "data_source": "test",
        "ground_truth": "B",
        "extra_info": extra_info,
        "reward": {**asyncio.run(method.score(made, sample)), "acc": 1.0},
        "trajectory": Trajectory.from_dict(json.loads(json.dumps(made.to_dict()))),
    }


def dataset(path: Path) -> TrajectorySFTDataset:
    fields = {"talking": {"initial_frames": 2}}
    return TrajectorySFTDataset(str(path), tokenizer(), {"max_length": 16384, "video_tools": fields}, processor())


def exported(tmp_path: Path, lines: list[dict[str, Any]]) -> Path:
    rows, _ = rows_of_records(lines, min_accuracy=None, min_iou=0.0, well_formed=False)
    path = tmp_path / "rows.parquet"
    pq.write_table(table_of_rows(rows), path)
    return path


def test_replies_reach_the_rows_and_are_read_again(tmp_path: Path) -> None:
    refused = CallRejected(CallErrorCode.NO_REPLY, "the model gave no reply that can be used")
    lines = [line([ANSWER], []), line(ASKING, ["a red hob", refused])]
    path = exported(tmp_path, lines)
    written = pq.read_table(path).to_pylist()
    assert [list(map(len, json.loads(row["model_calls"]))) for row in written] == [[], [0, 1, 1]]
    (stream,) = dataset(path).sequences(1)
    text = tokenizer().decode(stream.ids)
    assert "a red hob" in text and "no_reply" in text
    trained = tokenizer().decode(
        [id for id, mask in zip(stream.response_ids, stream.response_mask, strict=True) if mask]
    )
    assert "a red hob" not in trained and "What is there?" in trained


def test_rows_that_asked_nothing_have_no_such_column(tmp_path: Path) -> None:
    path = exported(tmp_path, [line([ANSWER], [])])
    assert "model_calls" not in pq.read_schema(path).names


def test_a_reply_to_another_question_is_an_error(tmp_path: Path) -> None:
    made = dataset(exported(tmp_path, [line(ASKING[1:], ["yes"])]))
    _, (asked,) = json.loads(made.rows[0]["model_calls"])
    made.rows[0]["model_calls"] = json.dumps([[], [{**asked, "request": "another"}]])
    with pytest.raises(RowError, match=r"a call failed: model_error: .*export the rollout again"):
        made.sequences(0)
