"""Rollouts of a group that are sampled, prompted and shown frames in their own way, through the real loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.group_method import NAME, FrameThinkerInGroups
from tests.turns.framethinker import answer, choose
from tests.verl_plugin.harness import Rollout, make_row, run_loop, tokenizer, video
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import method_of_rollout
from verl_video_tools.core.types import Trajectory
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.session_sampling import session_sampling
from verl_video_tools.verl_plugin.group_scores import begin_group
from verl_video_tools.verl_plugin.run_checks import check_rows

pytestmark = pytest.mark.usefixtures("group_method")

FIELDS = {"temperatures": [0.7, 1.0, 1.3], "frames_per_rollout": [4, 6, 8], "prompt_variants": 2}
TRAINING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
ROLLOUT = {"n": 3, **TRAINING, "val_kwargs": {"n": 3, "temperature": 0, "top_p": 1.0, "top_k": -1}}


async def rollout(session_id: int, fields: Mapping[str, Any] = FIELDS, **sampling_params: Any) -> Rollout:
    begin_group()
    return await run_loop(
        [choose(20, 60), answer("B")],
        method=NAME,
        method_fields=fields,
        row=make_row(video()) | {"session_id": session_id},
        rollout_options=ROLLOUT,
        sampling_params={**TRAINING, **sampling_params},
    )


@pytest.mark.parametrize("session_id", [0, 1, 2])
async def test_each_rollout_has_its_own(session_id: int) -> None:
    result = await rollout(session_id)
    temperature, num_frames = FIELDS["temperatures"][session_id], FIELDS["frames_per_rollout"][session_id]
    asked = [request["sampling_params"] for request in result.server.requests]
    assert len(asked) == 2
    assert all((each["temperature"], each["top_p"], each["top_k"]) == (temperature, 0.9, -1) for each in asked)
    assert all(each["logprobs"] is True for each in asked)
    trajectory = result.trajectory
    assert trajectory.sampling == {"temperature": temperature, "top_p": 0.9}
    assert len(trajectory.initial_frames) == num_frames
    prompt = tokenizer().decode(result.output.prompt_ids)
    assert ("Look twice" in prompt) == bool(session_id % 2)
    assert Trajectory.from_dict(trajectory.to_dict()) == trajectory
    own = method_of_rollout(FrameThinkerInGroups(), trajectory.settings)
    assert (own.initial_frames, own.prompt_variant) == (num_frames, session_id % 2)


@pytest.mark.parametrize("temperature", [0, 0.0])
async def test_greedy_and_validation_stay_as_verl_wants_them(temperature: float) -> None:
    """What verl samples greedily in training (REMAX) looks like validation; neither has options of its own."""
    result = await rollout(2, temperature=temperature)
    assert {request["sampling_params"]["temperature"] for request in result.server.requests} == {temperature}
    assert result.trajectory.sampling == {} and "top_p" in result.server.requests[0]["sampling_params"]


async def test_a_method_without_options_samples_as_the_run() -> None:
    result = await rollout(1, {})
    asked = result.server.requests[0]["sampling_params"]
    assert {name: asked[name] for name in TRAINING} == TRAINING
    assert (result.trajectory.sampling, result.trajectory.settings) == ({}, {})


def test_greedy_sampling_outside_validation_stays_greedy() -> None:
    """A worker of ours knows what validation is, and the options of both may differ."""
    method = get_method(NAME, **FIELDS)
    given = {temperature: session_sampling(method, 2, 3, False, {"temperature": temperature}) for temperature in (0, 1)}
    assert given == {0: {}, 1: {"temperature": 1.3, "top_p": 0.9}}


def test_old_records_have_none() -> None:
    record = Trajectory("m", "?").to_dict()
    record.pop("sampling")
    assert Trajectory.from_dict(record).sampling == {}


class Given(FrameThinkerInGroups):
    def sampling_options(self, session_id: int, group_size: int, validate: bool) -> Mapping[str, float]:
        return {"temperature": 0.5, **GIVEN}


GIVEN: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"temperature": "1.0"}, "temperature must be above 0"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"temperature": True}, "temperature must be above 0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"top_k": 0}, "top_k must be a whole number"),
        ({"top_k": 2.5}, "top_k must be a whole number"),
        ({"stop": 1.0}, "'stop'; a rollout may have its own temperature, top_p, top_k"),
        ({"n": 2}, "has 'n'"),
    ],
)
def test_other_options_and_values_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    monkeypatch.setitem(globals(), "GIVEN", options)
    with pytest.raises(UsageError, match=f"Given.sampling_options for rollout 3.*{said}"):
        session_sampling(Given(), 3, 8, False, TRAINING)
    assert session_sampling(Given(), 3, 8, True, TRAINING) == {}
    assert session_sampling(Given(), 3, 8, False, {"temperature": 0}) == {}


def test_whole_numbers_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "GIVEN", {"top_k": 20.0, "top_p": 1})
    found = session_sampling(Given(), 0, 8, False, TRAINING)
    assert repr(found) == "{'temperature': 0.5, 'top_k': 20, 'top_p': 1.0}"


def test_a_run_refuses_wrong_options_before_it_starts() -> None:
    config = {"agent": {}, **ROLLOUT, "custom": {"video_tools": {NAME: {"temperatures": [1.0, -1.0]}}}}
    rows = [make_row(video()) | {"agent_name": NAME}]
    with pytest.raises(UsageError, match=r"sampling_options for rollout 1: temperature must be above 0, got -1\.0"):
        check_rows(rows, OmegaConf.create(config), None, validate=False)
    check_rows(rows, OmegaConf.create(config), None, validate=True)
