"""Rows of rollouts that searched by text: answers are written, and shown again in fine-tuning without an encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

import verl_video_tools.services.retrieval
import verl_video_tools.verl_plugin.settings
import verl_video_tools.verl_plugin.sft_dataset
from tests.turns.framethinker import answer, choose
from tests.verl_plugin.harness import processor, run_loop, tokenizer
from verl_video_tools.core.errors import RetrievalError, RowError
from verl_video_tools.core.types import Method, Sample, Tool, ToolContext, ToolPlan, VideoInfo
from verl_video_tools.data.sft import execute, write_sft_rows
from verl_video_tools.methods.framethinker import FrameThinker
from verl_video_tools.methods.framethinker.method import ChooseFrames
from verl_video_tools.methods.toolkit.oracle import Script
from verl_video_tools.services.retrieval import RetrievalConfig
from verl_video_tools.verl_plugin import retrieval_actor
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset


class Odd:
    """Finds the odd frames, the last one first."""

    async def best_frames(self, path: str, candidates: Sequence[int], text: str, num: int, seconds: float) -> list[int]:
        return [index for index in reversed(candidates) if index % 2][:num]


@dataclass(frozen=True, kw_only=True)
class Searching(ChooseFrames):
    """Shows four frames that the retriever finds between two frame numbers."""

    name: ClassVar[str] = "choose_frames"

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        planned = await super().plan(arguments, context)
        if context.retriever is None:
            raise RetrievalError("this run has no retriever")
        candidates = range(arguments["start_frame"], arguments["end_frame"])
        best = await context.retriever.best_frames(context.sample.video_path, candidates, "red circle", 4, 30.0)
        assert planned.frames is not None
        return ToolPlan(replace(planned.frames, indices=tuple(sorted(best))))


@dataclass(frozen=True, kw_only=True)
class SearchingFrameThinker(FrameThinker):
    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        tools = super().tools(info)
        choose_frames = tools["choose_frames"]
        assert isinstance(choose_frames, ChooseFrames)
        return {**tools, "choose_frames": Searching(**vars(choose_frames))}


class Fixed:
    def script(self, spec: Any, question: Any) -> Script:
        return Script("A", (choose(20, 60), answer(question.answer)))


@pytest.fixture
def parquet(rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def searching(name: str, **fields: Any) -> Method:
        return SearchingFrameThinker(**fields)

    monkeypatch.setattr(verl_video_tools.verl_plugin.sft_dataset, "get_method", searching)
    path = tmp_path / "sft.parquet"
    write_sft_rows(rows[:2], Fixed(), path, method=SearchingFrameThinker(), keep_wrong=True, retriever=Odd())
    return path


def make_dataset(path: Path) -> TrajectorySFTDataset:
    options = OmegaConf.create({"pad_mode": "no_padding", "max_length": 4096})
    return TrajectorySFTDataset(str(path), tokenizer(), options, processor())


async def test_a_rollout_records_what_was_found(rows: list[dict[str, Any]]) -> None:
    turns = [choose(20, 60), answer("A")]
    trajectory = await execute(SearchingFrameThinker(), Sample.from_row(rows[0]), turns, Odd())
    (call,) = trajectory.executed_calls()
    assert call.retrieved_frames == [[59, 57, 55, 53]]
    assert [frame.index for frame in call.frames] == [53, 55, 57, 59]


async def test_a_run_without_retriever_fails_the_call_and_flags_the_rollout(rows: list[dict[str, Any]]) -> None:
    trajectory = await execute(SearchingFrameThinker(), Sample.from_row(rows[0]), [choose(20, 60), answer("A")])
    (call,) = trajectory.calls()
    assert (call.ok, str(call.error)) == (False, "retrieval_error: this run has no retriever")
    assert trajectory.flags == ["retrieval_error"]


def test_flagged_rollouts_are_no_examples(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """The expert answers right, but its search failed: nobody should learn to answer without having looked."""
    lost = rows[0]["extra_info"]["video_path"]

    class Failing(Odd):
        async def best_frames(self, path: str, *args: Any) -> list[int]:
            if path == lost:
                raise RetrievalError("the encoder is gone")
            return await super().best_frames(path, *args)

    path = tmp_path / "flagged.parquet"
    asked = rows[3:6]  # one question about the first video, two about the second
    for options in ({}, {"keep_wrong": True}):
        report = write_sft_rows(
            asked, Fixed(), path, method=SearchingFrameThinker(ccv=False), retriever=Failing(), **options
        )
        assert (report.kept, report.dropped) == ({"A": 2}, {"flagged": 1})
        assert [row["extra_info"]["video_path"] for row in pq.read_table(path).to_pylist()].count(lost) == 0


async def test_the_agent_loop_asks_the_retriever_of_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[RetrievalConfig] = []

    def connect(config: RetrievalConfig) -> Odd:
        connected.append(config)
        return Odd()

    monkeypatch.setattr(retrieval_actor, "connect", connect)
    monkeypatch.setattr(verl_video_tools.verl_plugin.settings, "get_method", lambda name: SearchingFrameThinker())
    rollout = await run_loop([choose(20, 60), answer("B")], retrieval_fields={"model": "/m", "num_threads": 2})
    assert connected == [RetrievalConfig(model="/m", num_threads=2)]
    assert rollout.trajectory.calls()[0].retrieved_frames == [[59, 57, 55, 53]]


def test_the_data_set_shows_the_frames_that_the_row_names(parquet: Path) -> None:
    written = pq.read_table(parquet).to_pylist()
    assert [row["retrieved_frames"] for row in written] == [[[], [[59, 57, 55, 53]]]] * 2
    images = make_dataset(parquet).sequences(0)[0].images
    assert [image.record.index for image in images[-4:]] == [53, 55, 57, 59]


@pytest.mark.parametrize("answers", [[], [[], [[1, 2, 3, 4]]], [[], [[59, 57]]], [[[59, 57, 55, 53]]]])
def test_answers_that_do_not_fit_the_calls_are_an_error(parquet: Path, answers: list[list[list[int]]]) -> None:
    dataset = make_dataset(parquet)
    dataset.rows[0]["retrieved_frames"] = answers
    with pytest.raises(RowError, match=r"a call failed: retrieval_error: .*export the rollout again"):
        dataset.sequences(0)
    assert dataset.sequences(1)[0].images  # the others are not affected
