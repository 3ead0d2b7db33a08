"""What must hold between what the engine was given, what it returned, and the row that is trained on.

Each check is a sentence and a pure function of one rollout. A rollout that trains no token can harm nothing, so the
audit leaves it out of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from verl_video_tools.loop_check.records import Generation, Rollout, Row, RunSettings, trained_tokens
from verl_video_tools.rollout.tokens import placeholder_runs


class ReferenceModel(Protocol):
    """The model of a run, outside of it.

    Attributes:
        video_id: placeholder of videos, None if there is none.
        merge_size: patches of an image that make one placeholder, along each side.
    """

    image_id: int
    video_id: int | None
    merge_size: int

    def positions(self, ids: Sequence[int], grids_N3: Sequence[Sequence[int]]) -> list[list[int]]:
        """Positions as a row should hold them."""

    def log_probs(
        self, version: int, ids: Sequence[int], images: Sequence[str], *, banned: bool
    ) -> npt.NDArray[np.float32] | None:
        """Of every id but the first; None if the policy of this version is not at hand. `banned`: see `reference`.

        Raises:
            ValueError: images and placeholders do not fit.
        """


@dataclass(frozen=True)
class Context:
    """What checks need beside a rollout.

    Attributes:
        settings: of the run; None if it was not tapped.
        steps_with_trained: steps of which it was tapped what they have trained on.
        max_difference: allowed on average between log-probabilities of one rollout.
    """

    model: ReferenceModel
    settings: RunSettings | None
    steps_with_trained: frozenset[int]
    max_difference: float


Violations = list[str] | None
"""What is wrong in a rollout; None if the check cannot be applied to it."""


@dataclass(frozen=True)
class Check:
    """One thing that must hold.

    Attributes:
        told: it, in a sentence.
    """

    name: str
    told: str
    find: Callable[[Rollout, Context], Violations]


def trained_rows(rollout: Rollout, context: Context) -> list[Row]:
    """Those of a rollout that train at least one token."""
    return [row for row in rollout.rows if any(trained_tokens(rollout, row, context.steps_with_trained))]


# -------------------------------------------------------------------------------------------------- ids, mask, images


def _matched(rollout: Rollout, context: Context) -> Iterator[tuple[Generation, Row]]:
    """Each request that starts a row, with that row."""
    for generation in rollout.generations:
        for row in trained_rows(rollout, context):
            if row.ids[: len(generation.given_ids)] == generation.given_ids:
                yield generation, row
                break


def _ids_given(rollout: Rollout, context: Context) -> Violations:
    known = {id(generation) for generation, _ in _matched(rollout, context)}
    return [
        f"request {number} has {len(generation.given_ids)} ids that no row begins with"
        for number, generation in enumerate(rollout.generations, start=1)
        if id(generation) not in known
    ]


def _ids_sampled(rollout: Rollout, context: Context) -> Violations:
    found = []
    for generation, row in _matched(rollout, context):
        start = len(generation.given_ids)
        for i, (kept, returned) in enumerate(zip(row.ids[start:], generation.returned_ids, strict=False), start=start):
            if kept != returned:
                found.append(f"token {i} of the row is {kept}, the engine has sampled {returned}")
                break
    return found


def _covered(row: Row, matched: Sequence[tuple[Generation, Row]]) -> list[int]:
    """1 for each token of a row's response in whose place the engine has sampled one."""
    covered = [0] * len(row.ids)
    for generation, its_row in matched:
        if its_row is row:
            start = len(generation.given_ids)
            stop = min(start + len(generation.returned_ids), len(covered))
            covered[start:stop] = [1] * (stop - start)
    return covered[len(row.prompt_ids) :]


def _mask(rollout: Rollout, context: Context) -> Violations:
    matched = list(_matched(rollout, context))
    found = []
    for row in trained_rows(rollout, context):
        expected = _covered(row, matched)
        if len(row.response_mask) != len(expected):
            found.append(f"the mask has {len(row.response_mask)} entries for {len(expected)} tokens")
        elif row.response_mask != expected:
            first = next(
                i for i, pair in enumerate(zip(row.response_mask, expected, strict=True)) if pair[0] != pair[1]
            )
            found.append(f"the mask is {row.response_mask[first]} at token {first} of the response")
    return found


def _log_probs_kept(rollout: Rollout, context: Context) -> Violations:
    if any(row.log_probs is None for row in rollout.rows) or not any(g.log_probs for g in rollout.generations):
        return None
    found = []
    for generation, row in _matched(rollout, context):
        start = len(generation.given_ids) - len(row.prompt_ids)
        kept = (row.log_probs or [])[start : start + len(generation.log_probs)]
        returned = generation.log_probs[: len(row.response_ids) - start]
        if len(kept) != len(returned) or not np.allclose(kept, returned, rtol=0, atol=1e-6):
            found.append(f"log-probabilities from token {start} of the response on are not those that were returned")
    return found


def _images_given(rollout: Rollout, context: Context) -> Violations:
    found = []
    for number, generation in enumerate(rollout.generations, start=1):
        num_runs = len(placeholder_runs(generation.given_ids, context.model.image_id))
        if num_runs != len(generation.images):
            found.append(f"request {number} has {len(generation.images)} images and {num_runs} runs of placeholders")
    for generation, row in _matched(rollout, context):
        expected = row.images[: len(placeholder_runs(generation.given_ids, context.model.image_id))]
        if generation.images != expected:
            found.append(f"the engine was given other images, or in another order, than the row has ({len(expected)})")
    return found


def _placeholders(rollout: Rollout, context: Context) -> Violations:
    found = []
    for row in trained_rows(rollout, context):
        runs = placeholder_runs(row.ids, context.model.image_id)
        expected = [prod(grid) // context.model.merge_size**2 for grid in row.grids_N3]
        if runs != expected:
            found.append(f"runs of placeholders {runs}, and images of {expected} tokens")
        elif len(row.images) != len(expected):
            found.append(f"{len(row.images)} images handed over, {len(expected)} in the row")
    return found


def _no_sampled_placeholder(rollout: Rollout, context: Context) -> Violations:
    placeholders = {context.model.image_id, context.model.video_id}
    return [
        f"request {number} was answered with a placeholder"
        for number, generation in enumerate(rollout.generations, start=1)
        if not placeholders.isdisjoint(generation.returned_ids)
    ]


def _positions(rollout: Rollout, context: Context) -> Violations:
    found = []
    for row in trained_rows(rollout, context):
        try:
            expected = context.model.positions(row.ids, row.grids_N3)
        except (ValueError, RuntimeError, IndexError, StopIteration) as error:
            found.append(f"the model has no positions for this row: {type(error).__name__}: {error}")
            continue
        if row.position_ids_CL != expected:
            found.append("the positions are not the model's own")
    return found


# ------------------------------------------------------------------------------------------------- log-probabilities


def _difference(
    reference: npt.NDArray[np.float32], row: Row, found: Sequence[float], mask: Sequence[int]
) -> float | None:
    """Mean of the absolute differences over the tokens of the mask; None if there are none."""
    expected = reference[len(row.prompt_ids) - 1 :]
    length = min(len(expected), len(found), len(mask))
    kept = np.array(mask[:length], dtype=bool)
    if not kept.any():
        return None
    return float(np.abs(expected[:length] - np.array(found[:length]))[kept].mean())


def _compared(
    rollout: Rollout,
    context: Context,
    version: int,
    log_probs_of: Callable[[Row], Sequence[float] | None],
    banned: bool,
) -> Violations:
    found: list[str] = []
    num_compared = 0
    for row in trained_rows(rollout, context):
        own = log_probs_of(row)
        if own is None:
            continue
        try:
            reference = context.model.log_probs(version, row.ids, row.images, banned=banned)
        except (ValueError, RuntimeError, IndexError, StopIteration) as error:
            found.append(f"the model cannot be run on this row: {type(error).__name__}: {error}")
            continue
        if reference is None:
            continue
        mask = trained_tokens(rollout, row, context.steps_with_trained)
        difference = _difference(reference, row, own, mask)
        num_compared += difference is not None
        if difference is not None and not difference <= context.max_difference:
            found.append(f"log-probabilities differ by {difference:.2g} on average from those of plain transformers")
    return found if found or num_compared else None


def _engine_log_probs(rollout: Rollout, context: Context) -> Violations:
    settings = context.settings
    if settings is not None and (settings.top_p < 1 or settings.top_k > 0):
        return None  # the engine then renormalises over what it would sample
    versions = {generation.version for generation in rollout.generations}
    if len(versions) > 1:
        return None
    version = versions.pop() if versions else None
    version = rollout.step - 1 if version is None else version
    return _compared(rollout, context, version, lambda row: row.log_probs, banned=True)


def _actor_log_probs(rollout: Rollout, context: Context) -> Violations:
    def of_actor(row: Row) -> Sequence[float] | None:
        trained = rollout.trained.get(row.sequence)
        return None if trained is None else trained.actor_log_probs

    return _compared(rollout, context, rollout.step - 1, of_actor, banned=False)


CHECKS: Sequence[Check] = (
    Check("ids_given", "Each request to the engine is a prefix of a row, token for token.", _ids_given),
    Check("ids_sampled", "Where the engine answered, the row has the tokens it returned.", _ids_sampled),
    Check("mask", "The loss mask is 1 exactly on the tokens that the engine has sampled.", _mask),
    Check("log_probs_kept", "The row's log-probabilities are those that came with its tokens.", _log_probs_kept),
    Check("images_given", "The engine was given the row's images, all and in their order.", _images_given),
    Check("placeholders", "Each image has as many placeholders as its size requires, in order.", _placeholders),
    Check("no_sampled_placeholder", "No trained token is a placeholder of media.", _no_sampled_placeholder),
    Check("positions", "The row's positions are those that the model itself computes.", _positions),
    Check(
        "engine_log_probs",
        "The engine's log-probabilities equal transformers' on the row's ids and images, with its reported weights.",
        _engine_log_probs,
    ),
    Check(
        "actor_log_probs",
        "The actor's log-probabilities equal transformers' on the same, with the step's weights.",
        _actor_log_probs,
    ),
)
"""Those of one rollout. `advantages.ADVANTAGES` looks at a group."""


def violations(rollout: Rollout, context: Context) -> Mapping[str, Violations]:
    """By the name of the check. None at all for a rollout that trains no token."""
    if not trained_rows(rollout, context):
        return {}
    return {check.name: check.find(rollout, context) for check in CHECKS}
