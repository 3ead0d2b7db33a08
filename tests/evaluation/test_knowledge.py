"""Video-MMMU's knowledge gain, from a run with the lectures and one without."""

from __future__ import annotations

from typing import Any

import pytest

from verl_video_tools.evaluation.knowledge import knowledge_gain, knowledge_table


def result(benchmark: str, model: str, accuracy: float, published: float, label: str = "direct") -> dict[str, Any]:
    figures = {"accuracy": accuracy, "accuracy_published": published}
    protocol = {"benchmark": benchmark, "model": model, "method": "direct", "label": label}
    return {"protocol": protocol, "overall": figures, "groups": {"track": {"Adaptation": figures}}}


@pytest.mark.parametrize(
    ("before", "after", "gain"), [(0.4, 0.55, 0.25), (0.5, 0.25, -0.5), (0.0, 0.3, 0.3), (1.0, 1.0, None)]
)
def test_the_gain_is_a_share_of_what_could_be_gained(before: float, after: float, gain: float | None) -> None:
    assert knowledge_gain(before, after) == (None if gain is None else pytest.approx(gain))


def test_results_of_one_model_with_and_without_the_lecture() -> None:
    results = {
        "lecture": result("video-mmmu", "m", 0.55, 0.7),
        "bare": result("video-mmmu-question-only", "m", 0.4, 0.4),
        "other": result("video-mmmu-question-only", "n", 0.4, 0.4),
        "blind": result("video-mmmu", "m", 0.45, 0.45, label="direct, no visual"),
        "mme": result("video-mme", "m", 0.9, 0.9),
    }
    assert knowledge_table(results).rows == [
        ["lecture", "bare", "accuracy", "40.0", "55.0", "25.0"],
        ["lecture", "bare", "accuracy, published", "40.0", "70.0", "50.0"],
    ]
    assert knowledge_table({"mme": results["mme"]}).rows == []
