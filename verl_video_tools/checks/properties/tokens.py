"""Properties of the tokens that a rollout of the method is trained on."""

from __future__ import annotations

from typing import get_args

from verl_video_tools.checks.byte_tokens import IMAGE
from verl_video_tools.checks.outcome import NotApplicable, fail
from verl_video_tools.checks.registry import holds
from verl_video_tools.checks.subject import Subject
from verl_video_tools.checks.token_rollouts import roll_out
from verl_video_tools.checks.world import QWEN
from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.types import ContextPolicy
from verl_video_tools.rollout.tokens import check_invariants
from verl_video_tools.video import image_tokens

_FORMS = ("rollouts_end", "initial_frames_fit_the_processor", "plans_fit_the_processor", "context_policy_is_known")


def _scripts(subject: Subject) -> list[list[str]]:
    kinds = subject.of_kind("good", "each tool", "refused", "endless", "garbage", "empty", "answer")
    return [list(rollout.turns) for rollout in kinds]


@holds("tokens")
def context_policy_is_known(subject: Subject) -> None:
    """`context_policy` is one of those that the loop builds sequences for, because images are kept or left by it."""
    if (policy := subject.method.context_policy()) not in get_args(ContextPolicy):
        raise fail("context_policy()", policy, f"return one of {', '.join(get_args(ContextPolicy))}")


@holds("tokens", requires=_FORMS)
def mask_is_on_sampled_tokens(subject: Subject) -> None:
    """The loss mask is 1 exactly on what the server returned, because nothing else was the policy's choice."""
    for turns in _scripts(subject):
        rollout = roll_out(subject, turns)
        for stream in rollout.tokens.sequences:
            counts = [image_tokens(image.record.width, image.record.height, QWEN.factor) for image in stream.images]
            try:
                check_invariants(stream, IMAGE, counts)
            except InvariantError as error:
                raise fail(f"tokens of the turns {turns!r:.120}", error, "leave tokens to the loop") from error
        sampled = [token for stream in rollout.tokens.sequences for turn in stream.sampled_turns for token in turn]
        if sampled != [token for turn in rollout.server.returned for token in turn]:
            raise fail(
                "tokens kept are not those that the server returned", len(sampled), "let a stop string end the call"
            )


@holds(
    "tokens",
    requires=("mask_is_on_sampled_tokens", "prompt_shows_its_frames", "observations_show_the_frames_of_the_call"),
)
def images_of_the_tokens_are_those_recorded(subject: Subject) -> None:
    """The model is shown the frames that the record holds, in that order, because rewards read the record."""
    for turns in _scripts(subject):
        rollout = roll_out(subject, turns)
        calls = [
            [frame for call in turn.calls if call.ok for frame in call.frames] for turn in rollout.trajectory.turns
        ]
        recorded = [list(rollout.trajectory.initial_frames), *calls]
        for number, shown in enumerate(rollout.shown):
            records = [image.record for image in shown]
            if records != recorded[number]:
                got = [record.index for record in records]
                wanted = [record.index for record in recorded[number]]
                raise fail(
                    f"frames shown before turn {number + 1}, of the recorded {wanted}", got, "put in each image once"
                )


@holds("tokens", requires=("mask_is_on_sampled_tokens", "stop_strings_end_a_call"))
def stop_strings_are_kept(subject: Subject) -> None:
    """The engine gets the stop strings, and a turn that ends with one keeps it, because the call is read with it."""
    stops, call = subject.method.stop, subject.call_turn()
    if not stops:
        raise NotApplicable("the method has no stop strings")
    rollout = roll_out(subject, [f"{call} and more", "nothing"])
    asked = rollout.server.sampling_params[0]
    if asked.get("stop") != list(stops) or not asked.get("include_stop_str_in_output"):
        raise fail("sampling parameters of a turn", asked, "leave them to the loop")
    if any(stop in call for stop in stops) and not any(call.ok for call in rollout.trajectory.turns[0].calls):
        raise fail(
            "a call that its stop string ended is not executed",
            rollout.trajectory.turns[0].calls,
            "read it with its stop string",
        )


@holds("tokens", requires=("mask_is_on_sampled_tokens",))
def token_limits_are_kept(subject: Subject) -> None:
    """No turn takes more than `max_turn_tokens`, and no rollout more than its budget, because memory is reserved so."""
    limit = subject.method.max_turn_tokens
    turns = [*[rollout.turns[0] for rollout in subject.of_kind("silent", "garbage")[:1]], "word " * 400]
    for response_tokens in (20, 600, 5_000):
        rollout = roll_out(subject, turns, response_tokens)
        for asked in rollout.server.sampling_params:
            if limit is not None and asked["max_tokens"] > limit:
                raise fail(
                    f"max_tokens of a turn exceeds max_turn_tokens={limit}", asked["max_tokens"], "leave it to the loop"
                )
        for stream in rollout.tokens.sequences:
            if len(stream.response_ids) > response_tokens:
                raise fail(
                    f"tokens of a response exceed {response_tokens}", len(stream.response_ids), "leave it to the loop"
                )
