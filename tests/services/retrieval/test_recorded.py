"""Answers travel with the record, and a recorded rollout is executed again without an encoder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from verl_video_tools.core.errors import RetrievalError
from verl_video_tools.core.types import CallRecord, Trajectory, Turn
from verl_video_tools.services.retrieval import (
    RecordedRetriever,
    RecordingRetriever,
    recorded_answers,
    recorded_retriever,
)


class _LastFirst:
    async def best_frames(self, path: str, candidates: Sequence[int], text: str, num: int, seconds: float) -> list[int]:
        return list(candidates)[::-1][:num]


async def test_what_is_noted_is_given_again_in_order() -> None:
    call = CallRecord("search", {}, ok=True)
    retriever = RecordingRetriever(_LastFirst(), call.retrieved_frames)
    queries: list[tuple[Any, ...]] = [("v", [1, 2, 3], "a", 2, 1.0), ("v", [7, 9], "b", 4, 1.0)]
    found = [await retriever.best_frames(*query) for query in queries]
    assert found == [[3, 2], [9, 7]]
    trajectory = Trajectory("m", "q", turns=[Turn("t", [CallRecord("other", {}, ok=True), call])])
    again = Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict())))
    recorded = recorded_retriever(recorded_answers(again)).of_call(2)
    assert [await recorded.best_frames(*query) for query in queries] == found
    with pytest.raises(RetrievalError, match="no frames are recorded for 'c'"):
        await recorded.best_frames("v", [1], "c", 1, 1.0)


@pytest.mark.parametrize(("candidates", "num_frames"), [([1, 2], 2), ([2, 3, 4], 3)])
async def test_an_answer_to_another_query_is_refused(candidates: list[int], num_frames: int) -> None:
    with pytest.raises(RetrievalError, match="export the rollout again"):
        await RecordedRetriever([[3, 2]]).best_frames("v", candidates, "a", num_frames, 1.0)


def test_records_of_before_have_no_answers() -> None:
    old = Trajectory("m", "q", turns=[Turn("t", [CallRecord("crop", {}, ok=True)])]).to_dict()
    del old["turns"][0]["calls"][0]["retrieved_frames"]
    assert recorded_answers(Trajectory.from_dict(old)) == []
