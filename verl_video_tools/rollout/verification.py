"""Asks the policy once more, from frames alone, after its answer (`Method.verification_frames`).

The request is apart from the dialogue: a policy keeps nothing of it, so masks, prompts and sequences of the rollout are
what they would be without.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

from verl_video_tools.core.errors import PolicyError, VideoError
from verl_video_tools.core.trajectory import Verification
from verl_video_tools.core.types import FrameRequest, ImagePart, Message, Method, Sample, StopReason, Trajectory
from verl_video_tools.rollout.call_errors import failure_code
from verl_video_tools.rollout.policy import AssistantTurn, Policy
from verl_video_tools.rollout.special_tokens import escape_special_tokens

_TakeFrames = Callable[[FrameRequest], Awaitable[tuple[ImagePart, ...]]]


@runtime_checkable
class AnswersApart(Protocol):
    """A policy that can be asked apart from its dialogue. One that cannot, such as recorded turns, is not asked."""

    async def fits_apart(self, messages: Sequence[Message]) -> bool:
        """Whether a request fits; images come without pixels."""
        ...

    async def apart(self, messages: Sequence[Message]) -> AssistantTurn | None:
        """The reply to a request of its own, of which the dialogue shows nothing; None if there is none.

        Raises:
            PolicyError: as `Policy.turn`.
        """
        ...


async def verify(
    trajectory: Trajectory,
    method: Method,
    sample: Sample,
    policy: Policy,
    planned: _TakeFrames,
    decoded: _TakeFrames,
    abort: Callable[[str], None],
) -> None:
    """Note in `trajectory.verification` what the policy replies, where the rollout has answered and the method asks.

    Frames that cannot be decoded flag the rollout, as those of a call do.

    Args:
        planned: frames of a request without pixels.
        decoded: the same with them.
        abort: ends the rollout, where the policy cannot reply for a reason outside its reach.
    """
    if trajectory.stop_reason is not StopReason.ANSWER or trajectory.video is None:
        return
    if not isinstance(policy, AnswersApart) or (request := method.verification_frames(trajectory)) is None:
        return

    def messages(images: Sequence[ImagePart]) -> list[Message]:
        asked = method.verification_prompt(sample, info, images)
        return [Message(message.role, escape_special_tokens(message.content)) for message in asked]

    info, verification = trajectory.video, Verification()
    trajectory.verification = verification
    try:
        if not await policy.fits_apart(messages(await planned(request))):  # asked before anything is decoded
            verification.error = "does not fit"
            return
        images = await decoded(request)
    except VideoError as error:
        trajectory.flags.append(failure_code(error).value)
        verification.error = str(error)
        return
    verification.frames = [image.record for image in images]
    try:
        turn = await policy.apart(messages(images))
    except PolicyError as error:
        verification.error = str(error)
        abort(str(error))
        return
    if turn is None:
        verification.error = "the policy has no more to say"
    else:
        verification.text = turn.text
