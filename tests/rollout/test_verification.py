"""The policy asked once more from frames alone: what it sees, what is recorded, and that none of it is trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.rollout.test_episode_run import Listener
from tests.turns.framethinker import answer, choose
from tests.verl_plugin.harness import QUESTION, Rollout, run_loop, tokenizer, video
from verl_video_tools.core.errors import PolicyError
from verl_video_tools.core.types import (
    Message,
    Sample,
    StopReason,
    Trajectory,
    content_images,
    content_text,
)
from verl_video_tools.methods.framethinker import FrameThinker
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import AssistantTurn, ScriptedPolicy

METHOD = "tests.rollout.test_verification:Verified"
TURNS = [choose(20, 60), answer("B")]


@dataclass(frozen=True, kw_only=True)
class Verified(FrameThinker):
    """FrameThinker that asks again from the frames of its calls."""

    name: ClassVar[str] = "verified"

    times_shown: int = 1

    def verification_context(self, trajectory: Trajectory, dialogue: Sequence[Message]) -> list[Message] | None:
        images = [image for message in dialogue[2:] for image in content_images(message.content)]
        return [Message("user", (trajectory.question, *images * self.times_shown))] if images else None


@dataclass(frozen=True, kw_only=True)
class VerifiedThrice(Verified):
    """Shows each frame three times."""

    name: ClassVar[str] = "verified_thrice"

    times_shown: int = 3


@dataclass
class Apart(Listener):
    """Also answers apart; `replies` are given in order."""

    replies: Sequence[AssistantTurn | PolicyError | None] = ()

    def __post_init__(self) -> None:
        self.asked: list[Sequence[Message]] = []

    async def detached(self, messages: Sequence[Message]) -> AssistantTurn | None:
        self.asked.append(messages)
        reply = self.replies[len(self.asked) - 1]
        if isinstance(reply, PolicyError):
            raise reply
        return reply


async def rolled_out(policy: Apart, turns: Sequence[str] = TURNS) -> Trajectory:
    policy.turns = [AssistantTurn(turn) for turn in turns]
    return await Episode(Verified(), Sample(QUESTION, "B", video(), "mc")).run(policy)


async def test_the_request_shows_the_frames_and_no_word_of_the_rollout() -> None:
    policy = Apart([], replies=[AssistantTurn("it is B")])
    trajectory = await rolled_out(policy)
    ((message,),) = policy.asked
    assert content_text(message.content) == QUESTION + "<image>" * len(trajectory.turns[0].calls[0].frames)
    shown = [image.record.index for image in content_images(message.content)]
    assert shown == [frame.index for frame in trajectory.turns[0].calls[0].frames]
    assert trajectory.verification is not None and trajectory.verification.text == "it is B"
    assert [frame.index for frame in trajectory.verification.frames] == shown
    assert (len(trajectory.turns), trajectory.stop_reason, trajectory.answer) == (2, StopReason.ANSWER, "B")
    read = Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict())))
    assert read.verification == trajectory.verification


@pytest.mark.parametrize("turns", [TURNS[1:], TURNS[:1], ["no action"]])
async def test_it_is_not_asked_without_frames_or_without_an_answer(turns: list[str]) -> None:
    policy = Apart([])
    trajectory = await rolled_out(policy, turns)
    assert trajectory.verification is None and policy.asked == []
    assert "verification" not in trajectory.to_dict()


async def test_recorded_turns_cannot_be_asked() -> None:
    method = Verified()
    trajectory = await Episode(method, Sample(QUESTION, "B", video(), "mc")).run(
        Listener([AssistantTurn(turn) for turn in TURNS])
    )
    assert trajectory.verification is None and trajectory.stop_reason is StopReason.ANSWER


async def test_a_request_without_a_reply_is_told_and_the_rollout_is_trained_on() -> None:
    trajectory = await rolled_out(Apart([], replies=[None]))
    assert trajectory.verification is not None and trajectory.verification.text is None
    assert "does not fit" in str(trajectory.verification.error) and trajectory.flags == []


async def test_a_policy_that_cannot_reply_aborts_the_rollout() -> None:
    trajectory = await rolled_out(Apart([], replies=[PolicyError("gone")]))
    assert trajectory.stop_reason is StopReason.ABORTED and trajectory.flags == ["aborted"]
    assert trajectory.verification is not None and trajectory.verification.error == "gone"


async def test_a_script_replies_with_its_next_text() -> None:
    sample = Sample(QUESTION, "B", video(), "mc")
    trajectory = await Episode(Verified(), sample).run(ScriptedPolicy([*TURNS, "again"]))
    assert trajectory.verification is not None and trajectory.verification.text == "again"
    short = await Episode(Verified(), sample).run(ScriptedPolicy(TURNS))
    assert short.verification is not None and short.verification.text is None
    assert short.stop_reason is StopReason.ANSWER


async def test_nothing_of_it_is_trained_on() -> None:
    verified = await run_loop([*TURNS, "it is B"], method=METHOD)
    plain = await run_loop(TURNS, method="framethinker")
    assert trained(verified) == trained(plain)
    assert [image.tobytes() for image in verified.images] == [image.tobytes() for image in plain.images]
    assert verified.trajectory.flags == [] and verified.trajectory.verification is not None
    assert verified.trajectory.verification.text == "it is B"
    request = verified.server.requests[-1]
    asked = tokenizer().decode(request["prompt_ids"])
    assert len(verified.server.requests) == 3 and TURNS[0] not in asked and "answer" not in asked
    assert request["num_images"] == len(verified.trajectory.verification.frames)


def trained(rollout: Rollout) -> tuple[object, ...]:
    output = rollout.output
    return output.prompt_ids, output.response_ids, output.response_mask, output.response_logprobs


async def test_the_token_budget_is_asked() -> None:
    shown = await run_loop([*TURNS, "it is B"], method=METHOD, prompt_length=1024, response_length=1024)
    assert shown.trajectory.verification is not None and shown.trajectory.verification.text == "it is B"
    length = len(shown.server.requests[-1]["prompt_ids"])
    assert shown.server.requests[-1]["sampling_params"]["max_tokens"] == min(1024, 2048 - length)


async def test_what_the_engine_does_not_take_is_not_asked() -> None:
    result = await run_loop([*TURNS, "it is B"], method=f"{METHOD}Thrice", max_images=16)
    assert len(result.server.requests) == 2 and result.trajectory.flags == []
    verification = result.trajectory.verification
    assert verification is not None and (len(verification.frames), verification.text) == (24, None)
