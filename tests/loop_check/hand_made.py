"""Rollouts made by hand, as the taps would tell of them, and a model that is known by heart.

given     1 2 I I 3              -> 11 12 9
row       1 2 I I 3 | 11 12 9 2 I I 3 | 13 9      two images of two placeholders each
mask                   1  1 1 0 0 0 0    1 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from verl_video_tools.loop_check.checks import Context
from verl_video_tools.loop_check.records import Generation, Rollout, Row, RunSettings, Trained

IMAGE, VIDEO = 7, 8
PROMPT = [1, 2, IMAGE, IMAGE, 3]
FIRST, OBSERVATION, SECOND = [11, 12, 9], [2, IMAGE, IMAGE, 3], [13, 9]
RESPONSE = [*FIRST, *OBSERVATION, *SECOND]
MASK = [1, 1, 1, 0, 0, 0, 0, 1, 1]
GRID = [1, 2, 4]
SETTINGS = RunSettings(
    estimator="grpo",
    divides_by_std=True,
    kl_in_reward=False,
    temperature=1.0,
    top_p=1.0,
    top_k=-1,
    logprobs_mode="processed_logprobs",
)


class KnownModel:
    """Log-probabilities follow from the ids, the images and the version; positions count images once."""

    image_id, video_id, merge_size = IMAGE, VIDEO, 2

    def positions(self, ids: Sequence[int], grids_N3: Sequence[Sequence[int]]) -> list[list[int]]:
        flat = list(range(len(ids)))
        if sum(token == IMAGE for token in ids) != 2 * len(grids_N3):
            raise StopIteration
        rope = np.cumsum([token != IMAGE for token in ids]).tolist()
        return [flat, rope, rope, rope]

    def log_probs(
        self, version: int, ids: Sequence[int], images: Sequence[str], *, banned: bool
    ) -> npt.NDArray[np.float32] | None:
        if version > 2:
            return None
        if sum(token == IMAGE for token in ids) != 2 * len(images):
            raise ValueError("images and placeholders do not fit")
        seen = np.cumsum([sum(map(ord, images[i // 2])) if token == IMAGE else 0 for i, token in _numbered(ids)])
        values = -0.001 * seen - 0.01 * np.array(ids) - 0.1 * version - (0.0 if banned else 0.5)
        return values[1:].astype(np.float32)


def _numbered(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Each id with the number of placeholders before it."""
    before = np.cumsum([token == IMAGE for token in ids]) - [token == IMAGE for token in ids]
    return list(zip(before.tolist(), ids, strict=True))


def context(**changes: Any) -> Context:
    fields = {
        "model": KnownModel(),
        "settings": SETTINGS,
        "steps_with_trained": frozenset({1}),
        "max_difference": 1e-4,
    }
    return Context(**(fields | changes))


def rollout(
    fault: str | None = None,
    session_id: int = 0,
    *,
    score: float = 1.0,
    advantage: float = 0.0,
    uid: str = "g",
    row: dict[str, Any] | None = None,
    generations: Sequence[dict[str, Any]] = ({}, {}),
    trained: dict[str, Any] | None = None,
    is_trained: bool = True,
) -> Rollout:
    """One in which all is right, but for what is given.

    Args:
        row: fields of its row; `generations` and `trained` alike.
        is_trained: a step has trained on it.
    """
    where = {"uid": uid, "session_id": session_id, "step": 1}
    ids = [*PROMPT, *RESPONSE]
    model = KnownModel()
    engine = model.log_probs(0, ids, ["a", "b"], banned=True)
    actor = model.log_probs(0, ids, ["a", "b"], banned=False)
    assert engine is not None and actor is not None
    of_response = engine[len(PROMPT) - 1 :].tolist()
    log_probs = [value if keep else 0.0 for value, keep in zip(of_response, MASK, strict=True)]
    own: dict[str, Any] = {"loop": "my_loop", "fault": fault, "planted": False}
    asked = [
        {"given_ids": PROMPT, "images": ["a"], "returned_ids": FIRST, "log_probs": log_probs[:3], "version": 0},
        {
            "given_ids": [*PROMPT, *FIRST, *OBSERVATION],
            "images": ["a", "b"],
            "returned_ids": SECOND,
            "log_probs": log_probs[7:],
            "version": 0,
        },
    ]
    handed_over = {
        "sequence": 0,
        "lost": False,
        "prompt_ids": PROMPT,
        "response_ids": RESPONSE,
        "response_mask": MASK,
        "log_probs": log_probs,
        "images": ["a", "b"],
        "grids_N3": [GRID, GRID],
        "position_ids_CL": model.positions(ids, [GRID, GRID]),
        "flags": [],
    }
    of_step = {
        "sequence": 0,
        "response_mask": MASK,
        "log_probs": log_probs,
        "actor_log_probs": actor[len(PROMPT) - 1 :].tolist(),
        "advantage": advantage,
        "score": score,
    }
    return Rollout(
        uid,
        session_id,
        1,
        "my_loop",
        fault,
        [Generation(**(where | own | fields | changes)) for fields, changes in zip(asked, generations, strict=True)],
        [Row(**(where | own | handed_over | (row or {})))],
        {0: Trained(**(where | of_step | (trained or {})))} if is_trained else {},
    )
