"""Surface `rollouts`: whole rollouts on a real video, by random scripts, as tokens: executed is recorded, and paid."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np

from tests.fuzz import byte_tokens, methods, texts
from tests.fuzz.byte_tokens import END, IMAGE, VIDEO, ByteBuilder
from tests.fuzz.script import ScriptedServer
from tests.fuzz.surface import Surface
from tests.methods.doubles import ScoringRetriever
from tests.videos.files import BLOCKS, write_video
from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.types import (
    CallRecord,
    ImagePart,
    Message,
    Method,
    StopReason,
    Trajectory,
    content_images,
)
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import AssistantTurn
from verl_video_tools.rollout.token_policy import TokenPolicy
from verl_video_tools.rollout.tokens import RolloutTokens, TokenBudget, TokenCounter, check_invariants

NUM_FRAMES, SECONDS = 60, 4.0
REASONS = {*StopReason} - {StopReason.VIDEO_ERROR, StopReason.ABORTED, StopReason.SCRIPT_EXHAUSTED}


class Listening(TokenPolicy):
    """Keeps what the model is shown."""

    shown: list[list[ImagePart]]

    async def turn(self, messages: list[Message]) -> AssistantTurn:
        self.shown.append([image for message in messages for image in content_images(message.content)])
        return await super().turn(messages)


class Rollouts(Surface):
    """Rollouts of up to seven turns; frames are decoded, and carry their numbers."""

    name: ClassVar[str] = "rollouts"
    unit: ClassVar[str] = "turns of rollouts"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        fps = Fraction(NUM_FRAMES) / Fraction(SECONDS)
        self.video = write_video(folder / "video.mp4", num_frames=NUM_FRAMES, fps=fps, width=48, height=32)
        self.counter = TokenCounter(ByteBuilder(), IMAGE, factor=1)

    def make(self, random: Random) -> Any:
        variant = random.choice([*methods.VARIANTS])
        name = methods.VARIANTS[variant][0]
        turns = [methods.turn(random, name, SECONDS, NUM_FRAMES) for _ in range(random.choice((1, 2, 3, 4, 5, 7)))]
        return {
            "method": variant,
            "question": random.choice([*methods.QUESTIONS]),
            "asked": texts.mutated(random, "Which?") if random.random() < 0.2 else None,
            "turns": turns,
            # What a server may return beside a whole turn: tokens of images, no token, a turn without its end.
            "odd": [random.choice(("",) * 24 + ("image", "video", "none", "open", "open")) for _ in turns],
            "response_tokens": random.choice((200_000, 200_000, 40_000, 9_000, 3_000, 300)),
            "images": random.choice((None, None, None, 12, 6)),
        }

    def check(self, case: Any) -> int:
        return self.run(self._check(case))

    async def _check(self, case: Any) -> int:
        method, sample = methods.method_of(case["method"]), methods.sample_of(case["question"], str(self.video))
        if case["asked"]:
            sample = type(sample)(**{**vars(sample), "question": case["asked"]})
        server = ScriptedServer([_tokens(text, odd) for text, odd in zip(case["turns"], case["odd"], strict=True)])
        tokens = RolloutTokens(self.counter, END, method.context_policy())
        budget = TokenBudget(tokens, 200_000, case["response_tokens"], case["images"])
        policy = Listening(
            method, server, tokens, budget, byte_tokens.decode, "id", _none, {}, {}, frozenset({END}), True
        )
        policy.shown = []
        episode = Episode(method, sample, budget=budget, retriever=ScoringRetriever())
        trajectory = await episode.run(policy)

        assert trajectory.stop_reason in REASONS, (trajectory.stop_reason, trajectory.error)
        assert trajectory.flags in ([], [trajectory.stop_reason.value]), trajectory.flags
        _check_calls(trajectory, policy.shown, shows_something=method.compat == "strict")
        _check_pictures(policy.shown)
        sampled = [token for turn in server.returned for token in turn]
        placeholders = set[int]()
        for stream in tokens.sequences:  # later ones begin with the turns of earlier ones
            placeholders |= {IMAGE, VIDEO} & {token for turn in stream.sampled_turns for token in turn}
            _check_tokens(stream, placeholders)
            assert len(stream.response_ids) <= case["response_tokens"], "more tokens than the budget"
            assert len(stream.images) <= (case["images"] or 10_000)
        recorded = [token for stream in tokens.sequences for turn in stream.sampled_turns for token in turn]
        assert recorded == sampled or method.stop, "other tokens than were sampled"  # what follows a stop string is cut
        await _check_paid(method, trajectory, case["question"], str(self.video))
        return max(1, len(trajectory.turns))


async def _none(images: list[ImagePart]) -> list[Any]:
    return []


def _tokens(text: str, odd: str) -> list[int]:
    """What the server returns for a turn: its text and the end of the turn, or something odd."""
    tokens = byte_tokens.encode(text)
    middle = len(tokens) // 2
    if odd == "none":
        return []
    if odd == "open":
        return tokens
    special = {"image": [IMAGE], "video": [VIDEO]}.get(odd, [])
    return [*tokens[:middle], *special, *tokens[middle:], END]


def _check_calls(trajectory: Trajectory, shown: list[list[ImagePart]], shows_something: bool) -> None:
    """A call is executed if, and only if, the model was shown what it asked for, or would be with the next turn.

    Args:
        shows_something: no call is executed that shows no frame, as published code has them.
    """
    assert [image.record for image in shown[0]] == trajectory.initial_frames if shown else not trajectory.turns
    for number, turn in enumerate(trajectory.turns):
        executed = [call for call in turn.calls if call.ok]
        for call in turn.calls:
            _check_call(call, shows_something)
        frames = [frame for call in executed for frame in call.frames]
        if turn.observation is None:
            assert not executed, "a call without an observation is executed"
        if number + 1 < len(shown):
            assert [image.record for image in shown[number + 1]] == frames, "shown is not what is recorded"
        else:
            assert turn.observation is None or trajectory.stop_reason is not None


def _check_call(call: CallRecord, shows_something: bool) -> None:
    if call.ok:
        assert call.error is None and (call.frames or call.result or not shows_something), "nothing was shown or told"
    else:
        assert call.error is not None and not call.frames and not call.result, "refused, and yet shown"


def _check_pictures(shown: list[list[ImagePart]]) -> None:
    """The picture of a frame is that of its number. Small ones do not tell it."""
    for images in shown:
        for image in images:
            assert image.pixels_HWC is not None
            if min(image.pixels_HWC.shape[:2]) >= 24:
                (number,) = BLOCKS.read(image.pixels_HWC[None])
                assert number == image.record.index, f"picture {number} is recorded as frame {image.record.index}"


def _check_tokens(stream: Any, placeholders: set[int]) -> None:
    counts = [image.record.width * image.record.height for image in stream.images]
    try:
        check_invariants(stream, IMAGE, counts, VIDEO)
    except InvariantError:
        if not placeholders:
            raise
    else:
        assert not placeholders, f"the policy sampled {placeholders}, and no invariant was broken"


async def _check_paid(method: Method, trajectory: Trajectory, question: str, video: str) -> None:
    sample = methods.sample_of(question, video)
    kept = json.loads(json.dumps(trajectory.to_dict()))
    assert Trajectory.from_dict(kept).to_dict() == kept
    reward = await method.score(trajectory, sample, methods.EqualJudge())
    assert set(reward) == {"score", *method.reward_components} and np.isfinite(list(reward.values())).all()
    methods.check_reward(method, trajectory, reward)
    if method.compat == "strict":
        twin = methods.without_unexecuted(trajectory)
        assert await method.score(twin, sample, methods.EqualJudge()) == reward, "paid for what was not executed"
    assert math.isfinite(method.acc(reward, sample))
