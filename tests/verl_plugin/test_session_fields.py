"""Rollouts of a group that are prompted and shown frames in their own way, through the real loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.group_method import NAME, FrameThinkerInGroups
from tests.turns.framethinker import answer, choose
from tests.verl_plugin.harness import Rollout, make_row, run_loop, tokenizer, video
from verl_video_tools.core.method import method_of_rollout
from verl_video_tools.core.types import Trajectory
from verl_video_tools.verl_plugin.agent_loop_worker import begin_group

pytestmark = pytest.mark.usefixtures("group_method")

FIELDS = {"frames_per_rollout": [4, 6, 8], "prompt_variants": 2}
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
    num_frames = FIELDS["frames_per_rollout"][session_id]
    asked = [request["sampling_params"] for request in result.server.requests]
    assert len(asked) == 2
    assert all({name: each[name] for name in TRAINING} == TRAINING and each["logprobs"] is True for each in asked)
    trajectory = result.trajectory
    assert len(trajectory.initial_frames) == num_frames
    prompt = tokenizer().decode(result.output.prompt_ids)
    assert ("Look twice" in prompt) == bool(session_id % 2)
    assert Trajectory.from_dict(trajectory.to_dict()) == trajectory
    own = method_of_rollout(FrameThinkerInGroups(), trajectory.settings)
    assert (own.initial_frames, own.prompt_variant) == (num_frames, session_id % 2)
