"""The shipped CLIP through the service: the frames of an event are found in whole held-out videos."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.retrieval import measure_recall


@pytest.mark.slow
async def test_recall_at_4_on_validation_videos(tmp_path: Path) -> None:
    recall = await measure_recall(4, tmp_path)
    assert recall.queries >= 24
    assert recall.recall_at_4 >= 0.95
    assert recall.precision_at_4 >= 0.9 > 3 * recall.chance
