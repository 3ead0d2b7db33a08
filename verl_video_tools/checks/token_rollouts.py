"""Rollouts as the agent loop makes them, token by token, behind a scripted server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl_video_tools.checks import byte_tokens
from verl_video_tools.checks.byte_tokens import ScriptedServer, byte_counter
from verl_video_tools.checks.subject import Subject
from verl_video_tools.checks.world import QWEN, RankingRetriever
from verl_video_tools.core.types import ImagePart, Message, Trajectory, content_images
from verl_video_tools.rollout.budget import TokenBudget
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import AssistantTurn
from verl_video_tools.rollout.sequences import RolloutTokens, rollout_tokens
from verl_video_tools.rollout.token_policy import TokenPolicy

PLENTY = 10_000_000


class ListeningPolicy(TokenPolicy):
    """Keeps what each turn is newly shown."""

    shown: list[list[ImagePart]]

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn:
        self.shown.append([image for message in messages for image in content_images(message.content)])
        return await super().turn(messages)

    async def apart(self, messages: Sequence[Message]) -> AssistantTurn:
        reply = await super().apart(messages)
        self.server.returned.pop()  # the server's list is that of the rollout's turns
        self.server.sampling_params.pop()
        return reply


@dataclass(frozen=True)
class TokenRollout:
    """What came of turns that a server returned as tokens."""

    trajectory: Trajectory
    tokens: RolloutTokens
    server: ScriptedServer
    shown: list[list[ImagePart]]


def roll_out(subject: Subject, turns: Sequence[str], response_tokens: int = PLENTY) -> TokenRollout:
    """One rollout of the method whose policy says `turns`, in bytes, with frames of a Qwen2.5-VL's sizes."""
    method, server = subject.method, ScriptedServer(list(turns))
    tokens = rollout_tokens(method.context_policy(), byte_counter(), byte_tokens.END)
    budget = TokenBudget(tokens, PLENTY, response_tokens)
    policy = ListeningPolicy(
        method=method,
        server=server,
        tokens=tokens,
        budget=budget,
        decode=byte_tokens.decode,
        request_id="check",
        send_images=_none,
        sampling_params={},
        mm_processor_kwargs={},
        end_ids=frozenset({byte_tokens.END}),
        with_logprobs=True,
    )
    policy.shown = []
    episode = Episode(method, subject.sample, QWEN, budget, RankingRetriever())
    trajectory = subject.wait(episode.run(policy))
    return TokenRollout(trajectory, tokens, server, policy.shown)


async def _none(images: Sequence[ImagePart]) -> list[Any]:
    return []
