"""Evaluation shows the model what training shows it, byte for byte: the agent loop's tokens and pictures against the
requests that an endpoint gets, for the same item and the same turns."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chat_server import chat_reply, pictures_of, texts_of, thinking
from tests.judge_server import JudgeServer
from tests.turns.every_method import CASES, Case, Scattered
from tests.verl_plugin.harness import Rollout, Unended, make_row, model_dir, processor, run_loop, video
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import Trajectory
from verl_video_tools.data.parquet import read_table
from verl_video_tools.methods import get_method
from verl_video_tools.records.records import read_records

pytest.importorskip("openai", reason="the extra `judge` is not installed")

VALIDATION = {"temperature": 0.0, "top_p": 1.0, "top_k": -1}
OPTIONS = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "n": 4, "val_kwargs": {"n": 1, **VALIDATION}}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    row = make_row(video())
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(
        pa.Table.from_pylist([{name: row[name] for name in ("data_source", "reward_model", "extra_info")}]), path
    )
    return path


@pytest.fixture
def server() -> Any:
    with JudgeServer() as server:
        yield server


def evaluate(
    case: Case, rows: Path, out: Path, server: JudgeServer, *options: str, reasons: str | None = None
) -> Trajectory:
    """The recorded rollout of `vvt eval`, of a model that reasons natively in the shape `reasons`."""
    turns = [*case.looks, case.answer]
    server.reply = lambda request: chat_reply(turns[sum(m["role"] == "assistant" for m in request["messages"])])
    if reasons is not None:
        server.reply = thinking(server.reply, reasons, "It could be <answer>A</answer>, or not.")
    fields = [f"--set={name}={json.dumps(value)}" for name, value in case.fields.items()]
    command = ["eval", f"--rows={rows}", f"--out={out}", f"--method={case.method}", *fields, *options]
    retrieval = ["--retrieval=model=unused"] if get_method(case.method).searches else []
    assert run([*command, *retrieval, f"--base-url={server.base_url}"]) == 0
    (record,) = read_records(out / "rollouts.jsonl")
    trajectory: Trajectory = record["trajectory"]
    assert (trajectory.answer, trajectory.flags) == ("B", [])
    return trajectory


async def train(case: Case, rows: Path) -> Rollout:
    """The rollout of the agent loop, as verl samples it for validation."""
    (row,) = read_table(rows).to_pylist()
    ends_by_stop_string = bool(get_method(case.method).stop)
    looks = [Unended(look) if ends_by_stop_string else look for look in case.looks]
    return await run_loop(
        [*looks, case.answer],
        row={**make_row(row["extra_info"]["video_path"]), **row},
        method=case.method,
        method_fields=case.fields,
        rollout_options=OPTIONS,
        sampling_params=VALIDATION,
        retrieval_fields={"model": "unused"} if get_method(case.method).searches else None,
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.method)
async def test_observations_are_those_of_training(
    case: Case, rows: Path, tmp_path: Path, server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_in_evaluation, asked_in_training = Scattered(), Scattered()
    local = "verl_video_tools.services.retrieval.local_from_fields"
    monkeypatch.setattr(local, lambda fields: asked_in_evaluation if fields else None)
    monkeypatch.setattr("verl_video_tools.verl_plugin.retrieval_actor.connect", lambda config: asked_in_training)
    trained = await train(case, rows)
    evaluated = await asyncio.to_thread(evaluate, case, rows, tmp_path / "out", server, f"--processor={model_dir()}")
    theirs = trained.trajectory
    assert [turn.observation for turn in evaluated.turns] == [turn.observation for turn in theirs.turns]
    assert evaluated.initial_frames == theirs.initial_frames
    assert [call.frames for call in evaluated.calls()] == [call.frames for call in theirs.calls()]
    assert len(evaluated.executed_calls()) == len(case.looks)
    assert asked_in_evaluation.queries == asked_in_training.queries
    assert len(asked_in_training.queries) == sum("clip_sample" in look for look in case.looks)

    # What each request shows, as pictures and as the tokens that a server makes of it with the model's own processor.
    assert len(server.requests) == len(trained.server.requests) == len(case.looks) + 1
    for request, sampled in zip(server.requests, trained.server.requests, strict=True):
        pictures = [picture for message in request["messages"] for picture in pictures_of(message)]
        assert len(pictures) == sampled["num_images"]
        for ours, shown in zip(pictures, trained.images, strict=False):
            assert np.array_equal(np.asarray(ours), np.asarray(shown))
        assert tokens_of(request["messages"]) == sampled["prompt_ids"]


def tokens_of(messages: list[dict[str, Any]]) -> list[int]:
    """A request as an inference server tokenises it."""

    def plain(content: Any) -> Any:
        if isinstance(content, str):
            return content
        return [part if part["type"] == "text" else {"type": "image"} for part in content]

    chat = [{"role": message["role"], "content": plain(message["content"])} for message in messages]
    text = processor().apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    pictures = [picture for message in messages for picture in pictures_of(message)]
    return list(processor()(text=[text], images=pictures)["input_ids"][0])


async def test_without_the_processor_the_server_decides_on_sizes(
    rows: Path, tmp_path: Path, server: JudgeServer
) -> None:
    """What the processor is asked for: without it the same frames travel at another size."""
    case = CASES[0]
    trained = await train(case, rows)
    evaluated = await asyncio.to_thread(evaluate, case, rows, tmp_path / "out", server)
    ours, theirs = evaluated.initial_frames, trained.trajectory.initial_frames
    assert [frame.index for frame in ours] == [frame.index for frame in theirs]
    assert {(frame.width, frame.height) for frame in ours} == {(96, 64)}
    assert {(frame.width, frame.height) for frame in theirs} != {(96, 64)}
    assert texts_of(server.requests[0]["messages"][1]).count("<image>") == len(theirs)
    result = json.loads((tmp_path / "out" / "results.json").read_text())
    assert result["protocol"]["pictures"]["sizes"] == "as the method asks; the server fits them"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.method)
def test_a_model_that_reasons_is_measured_by_what_it_says(
    case: Case, rows: Path, server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one shape; tests/services/endpoint has the others."""
    monkeypatch.setattr(
        "verl_video_tools.services.retrieval.local_from_fields", lambda fields: Scattered() if fields else None
    )
    plain = evaluate(case, rows, tmp_path / "plain", server)
    reasoned = evaluate(case, rows, tmp_path / "reasoned", server, reasons="opened by the template")
    assert [(turn.text, turn.well_formed) for turn in reasoned.turns] == [
        (turn.text, turn.well_formed) for turn in plain.turns
    ]
    assert len(reasoned.executed_calls()) == len(plain.executed_calls()) == len(case.looks)
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("plain", "reasoned")]
    assert results[0]["overall"] == results[1]["overall"]
