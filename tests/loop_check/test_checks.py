"""Each check on a rollout in which all is right, and on those in which one thing is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loop_check.hand_made import (
    FIRST,
    GRID,
    IMAGE,
    MASK,
    OBSERVATION,
    PROMPT,
    RESPONSE,
    SECOND,
    SETTINGS,
    VIDEO,
    KnownModel,
    context,
    rollout,
)
from verl_video_tools.loop_check.checks import CHECKS, violations
from verl_video_tools.loop_check.records import Generation, Rollout, Row

LOG_PROBS = rollout().rows[0].log_probs
assert LOG_PROBS is not None
FLAT = list(range(len(PROMPT) + len(RESPONSE)))


def broken(found: Rollout, **changes: Any) -> set[str]:
    """Names of the checks that a rollout breaks."""
    return {name for name, messages in violations(found, context(**changes)).items() if messages}


def idle(found: Rollout, **changes: Any) -> set[str]:
    """Names of the checks that cannot be applied to it."""
    return {name for name, messages in violations(found, context(**changes)).items() if messages is None}


def test_nothing_is_wrong() -> None:
    assert violations(rollout(), context()) == {check.name: [] for check in CHECKS}


def test_names_are_unique_and_told_in_a_sentence() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.told[0].isupper() and check.told.endswith(".") for check in CHECKS)


@pytest.mark.parametrize(
    ("row", "generations", "expected"),
    [
        # The engine has not seen the second image: it was asked for fewer ids.
        ({}, ({}, {"given_ids": [*PROMPT, *FIRST, 2, 3], "images": ["a"]}), {"ids_given", "mask"}),
        # It has seen the images in the wrong order, or one of them twice, or one too few for its placeholders.
        ({}, ({}, {"images": ["b", "a"]}), {"images_given"}),
        ({}, ({}, {"images": ["a", "a"]}), {"images_given"}),
        ({}, ({}, {"images": ["a"]}), {"images_given"}),
        # The row has other tokens than were sampled, in the last turn; then in the first, so that no request fits.
        ({}, ({}, {"returned_ids": [13, 10]}), {"ids_sampled"}),
        ({"response_ids": [11, 14, 9, *OBSERVATION, *SECOND]}, ({}, {}), {"ids_given", "ids_sampled", "mask"}),
        # The mask misses a sampled token, or covers one of an observation.
        ({"response_mask": [0, 1, 1, 0, 0, 0, 0, 1, 1]}, ({}, {}), {"mask"}),
        ({"response_mask": [0, 1, 1, 1, 0, 0, 0, 0, 1]}, ({}, {}), {"mask"}),
        ({"response_mask": MASK[:-1]}, ({}, {}), {"mask"}),
        # Log-probabilities of other tokens.
        ({"log_probs": [*LOG_PROBS[1:], LOG_PROBS[0]]}, ({}, {}), {"log_probs_kept", "engine_log_probs"}),
        # Placeholders and images do not fit, or the worker has dropped an image.
        ({"grids_N3": [GRID, [1, 2, 2]]}, ({}, {}), {"placeholders"}),
        ({"images": ["a", "b", "c"]}, ({}, {}), {"placeholders", "engine_log_probs", "actor_log_probs"}),
        ({"position_ids_CL": [FLAT] * 4}, ({}, {}), {"positions"}),
        ({"position_ids_CL": []}, ({}, {}), {"positions"}),
    ],
)
def test_one_thing_is_wrong(row: dict[str, Any], generations: Any, expected: set[str]) -> None:
    assert expected <= broken(rollout(row=row, generations=generations))
    if len(expected) == 1:
        assert broken(rollout(row=row, generations=generations)) == expected


@given(st.integers(0, len(MASK) - 1))
def test_any_entry_of_the_mask_matters(i: int) -> None:
    mask = [1 - keep if number == i else keep for number, keep in enumerate(MASK)]
    assert broken(rollout(row={"response_mask": mask})) >= {"mask"}


@given(st.integers(0, len(RESPONSE) - 1), st.integers(20, 30))
def test_any_other_token_is_seen(i: int, token: int) -> None:
    """In a turn that others follow, of an observation, and in the last turn."""
    response = [*RESPONSE[:i], token, *RESPONSE[i + 1 :]]
    found = broken(rollout(row={"response_ids": response}))
    assert ("ids_given" in found) == (i < len(RESPONSE) - len(SECOND))
    assert ("ids_sampled" in found) == (i < len(FIRST) or i >= len(RESPONSE) - len(SECOND))
    assert "engine_log_probs" in found or not MASK[i]


@given(st.permutations(["a", "b"]), st.sampled_from(["a", "b", "c"]))
def test_any_other_images_are_seen(order: list[str], last: str) -> None:
    given_images = [order[0], last]
    found = broken(rollout(generations=({"images": [order[0]]}, {"images": given_images})))
    assert ("images_given" in found) == (given_images != ["a", "b"])


def test_a_sampled_placeholder() -> None:
    for token in (IMAGE, VIDEO):
        returned = [*SECOND[:-1], token]
        row = {"response_ids": [*RESPONSE[:-1], token]}
        found = broken(rollout(row=row, generations=({}, {"returned_ids": returned})))
        assert "no_sampled_placeholder" in found
        assert ("placeholders" in found) == (token == IMAGE)


def test_another_picture_inside_the_engine_shows_in_its_log_probabilities_alone() -> None:
    model = KnownModel()
    seen = model.log_probs(0, [*PROMPT, *RESPONSE], ["a", "a"], banned=True)
    assert seen is not None
    shown = [value if keep else 0.0 for value, keep in zip(seen[len(PROMPT) - 1 :].tolist(), MASK, strict=True)]
    found = rollout(row={"log_probs": shown}, generations=({"log_probs": shown[:3]}, {"log_probs": shown[7:]}))
    assert broken(found) == {"engine_log_probs"}


def test_stale_weights_show_in_the_engines_log_probabilities_alone() -> None:
    found = rollout(generations=({"version": 1}, {"version": 1}))
    assert broken(found) == {"engine_log_probs"}, "it says that it has other weights"
    assert broken(rollout(generations=({"version": None}, {"version": None}))) == set(), (
        "then it should have the step's"
    )


def test_an_actor_on_other_positions_shows_in_its_log_probabilities_alone() -> None:
    assert broken(rollout(trained={"actor_log_probs": [-1.0] * len(MASK)})) == {"actor_log_probs"}


def test_what_cannot_be_compared() -> None:
    assert idle(rollout(generations=({"version": 3}, {"version": 3}))) == {"engine_log_probs"}, "no such policy"
    assert idle(rollout(generations=({"version": 0}, {"version": 1}))) == {"engine_log_probs"}, "two policies"
    for narrow in (replace(SETTINGS, top_p=0.9), replace(SETTINGS, top_k=20)):
        assert idle(rollout(), settings=narrow) == {"engine_log_probs"}
    assert idle(rollout(trained={"actor_log_probs": None})) == {"actor_log_probs"}
    silent = ({"log_probs": []}, {"log_probs": []})
    assert idle(rollout(row={"log_probs": None}, generations=silent)) == {"log_probs_kept", "engine_log_probs"}


def test_a_difference_within_the_bound_is_none() -> None:
    found = rollout(generations=({"version": 1}, {"version": 1}))
    assert broken(found, max_difference=0.2) == set()
    assert broken(rollout(row={"log_probs": [float("nan")] * len(MASK)})) >= {"engine_log_probs"}


def test_a_rollout_that_trains_nothing_is_left_out() -> None:
    wrong = {"position_ids_CL": [FLAT] * 4}
    zeros = [0] * len(MASK)
    assert violations(rollout(row={**wrong, "response_mask": zeros}, trained={"response_mask": zeros}), context()) == {}
    assert violations(rollout(row=wrong, trained={"response_mask": zeros}), context()) == {}, "the trainer left it out"
    assert violations(rollout(row=wrong, is_trained=False), context()) == {}, "the step has not trained on it"
    untapped = context(steps_with_trained=frozenset())
    assert violations(rollout(row=wrong, is_trained=False), untapped)["positions"], "it may have trained"


def test_a_row_that_is_cut_at_its_budget() -> None:
    """The last turn goes on beyond it; the loss mask, too, ends there."""
    kept = len(RESPONSE) - 1
    row = {
        "response_ids": RESPONSE[:kept],
        "response_mask": MASK[:kept],
        "log_probs": LOG_PROBS[:kept],
        "position_ids_CL": [each[:-1] for each in rollout().rows[0].position_ids_CL],
    }
    actor = rollout().trained[0].actor_log_probs
    assert actor is not None
    cut = {"response_mask": MASK[:kept], "log_probs": LOG_PROBS[:kept], "actor_log_probs": actor[:kept]}
    assert broken(rollout(row=row, trained=cut)) == set()


def test_a_rollout_of_two_sequences() -> None:
    """The second begins anew, with an image of the first."""
    whole = rollout()
    row = whole.rows[0]
    first = replace(row, response_ids=FIRST, response_mask=[1] * 3, log_probs=LOG_PROBS[:3], images=["a"])
    first = replace(first, grids_N3=[GRID], position_ids_CL=[each[:8] for each in row.position_ids_CL])
    other_prompt = [5, *PROMPT]
    model = KnownModel()
    log_probs = model.log_probs(0, [*other_prompt, *SECOND], ["b"], banned=True)
    assert log_probs is not None
    kept = log_probs[len(other_prompt) - 1 :].tolist()
    second = Row(
        **{
            **vars(first),
            "sequence": 1,
            "prompt_ids": other_prompt,
            "response_ids": SECOND,
            "response_mask": [1, 1],
            "log_probs": kept,
            "images": ["b"],
            "position_ids_CL": model.positions([*other_prompt, *SECOND], [GRID]),
        }
    )
    asked = Generation(**{**vars(whole.generations[1]), "given_ids": other_prompt, "images": ["b"], "log_probs": kept})
    found = replace(whole, generations=[whole.generations[0], asked], rows=[first, second], trained={})
    untapped = context(steps_with_trained=frozenset())
    messages = violations(found, untapped)
    assert {name: each for name, each in messages.items() if each} == {}
    swapped = replace(found, rows=[first, replace(second, images=["a"])])
    assert violations(swapped, untapped)["images_given"]
