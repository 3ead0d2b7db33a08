"""Properties of whole rollouts: turns, budgets, observations."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verl_video_tools.checks.labels import false_label
from verl_video_tools.checks.outcome import NotApplicable, fail
from verl_video_tools.checks.registry import holds
from verl_video_tools.checks.subject import Rollout, Subject
from verl_video_tools.checks.world import RankingRetriever, with_other_truth
from verl_video_tools.core.errors import FAILURE_CODES, CallError, CallErrorCode
from verl_video_tools.core.types import (
    CallRecord,
    Content,
    ImagePart,
    Message,
    StopReason,
    ToolOutcome,
    content_images,
    content_text,
)
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy

_FORMS = (
    "parse_returns_a_parsed_turn",
    "parse_depends_on_the_text_alone",
    "prompt_is_messages",
    "initial_frames_lie_in_the_video",
)


@holds("episode", requires=(*_FORMS, "plans_lie_in_the_video", "observations_answer_anything"))
def rollouts_end(subject: Subject) -> None:
    """Every rollout ends with a stop reason and none raises, because one that raises takes its whole group along."""
    try:
        rollouts = subject.rollouts
    except Exception as error:
        raise fail("a scripted rollout raises", error, "run the turns by `vvt replay` to see where") from error
    for rollout in rollouts:
        if rollout.trajectory.stop_reason is None or rollout.trajectory.error is not None:
            got = (rollout.trajectory.stop_reason, rollout.trajectory.error)
            raise fail(f"a rollout of the kind {rollout.kind!r} ends with", got, "run its turns by `vvt replay`")
    if subject.calls.turns and not any(rollout.trajectory.executed_calls() for rollout in rollouts):
        raise fail(
            "no rollout executes a call, with turns that did alone", len(rollouts), "keep nothing between rollouts"
        )


@holds("episode", requires=("rollouts_end",))
def turn_limit_is_kept(subject: Subject) -> None:
    """A policy that only calls gets `max_turns` turns, and its last call is refused, because nobody would read it."""
    subject.call_turn()
    for rollout in subject.of_kind("endless"):
        turns, limit = rollout.trajectory.turns, subject.method.max_turns
        if len(turns) > limit:
            raise fail(
                f"turns of a policy that only calls exceed max_turns={limit}", len(turns), "leave max_turns to the loop"
            )
        if len(turns) == limit and any(call.ok for call in turns[-1].calls):
            raise fail("a call of the last turn is executed", turns[-1].calls, "leave max_turns to the loop")


@dataclass
class _Watching:
    """A budget that notes what was decoded when it was asked, and refuses from the `refuse_from`-th time on."""

    refuse_from: int
    episode: Episode | None = None
    asked: int = 0
    decoded_first: list[int] = field(default_factory=list)
    """Numbers of the questions whose images had been decoded already."""
    decoded: list[int] = field(default_factory=list)
    """Frames decoded so far, at each question."""

    def refuses_prompt(self, messages: Sequence[Message]) -> StopReason | None:
        return self._ask(
            [image for message in messages for image in content_images(message.content)], StopReason.PROMPT_BUDGET
        )

    def refuses_observation(self, content: Content) -> StopReason | None:
        return self._ask(content_images(content), StopReason.RESPONSE_BUDGET)

    def _ask(self, images: list[ImagePart], reason: StopReason) -> StopReason | None:
        assert self.episode is not None
        cache = self.episode.trajectory.cache
        self.decoded.append(cache.hits + cache.misses)
        if any(image.pixels_HWC is not None for image in images):
            self.decoded_first.append(self.asked)
        self.asked += 1
        return reason if self.asked >= self.refuse_from else None


def _watched(subject: Subject, turns: list[str], refuse_from: int) -> tuple[_Watching, Episode]:
    budget = _Watching(refuse_from)
    episode = Episode(subject.method, subject.sample, budget=budget, retriever=RankingRetriever())
    budget.episode = episode
    subject.wait(episode.run(ScriptedPolicy(turns)))
    return budget, episode


@holds("episode", requires=("rollouts_end",))
def budgets_are_asked_before_pixels(subject: Subject) -> None:
    """A prompt that does not fit decodes nothing, because long videos would be decoded for nothing."""
    turns = subject.of_kind("silent", "answer", "garbage")[0].turns
    budget, episode = _watched(subject, list(turns), refuse_from=1)
    cache = episode.trajectory.cache
    if budget.asked != 1 or budget.decoded_first or cache.hits + cache.misses:
        raise fail(
            "frames decoded for a prompt that was refused", cache.hits + cache.misses, "decode nothing in the method"
        )
    if episode.trajectory.stop_reason is not StopReason.PROMPT_BUDGET:
        raise fail(
            "a prompt that was refused ends the rollout with", episode.trajectory.stop_reason, "leave it to the loop"
        )


@holds("episode", requires=("rollouts_end",))
def a_refused_observation_shows_nothing(subject: Subject) -> None:
    """A call whose observation does not fit decodes nothing and is not executed, because nobody saw its frames."""
    turn = subject.call_turn()
    budget, episode = _watched(subject, [turn, turn], refuse_from=2)
    if budget.decoded_first:
        raise fail(
            "images of an observation were decoded before its budget was asked",
            budget.decoded_first,
            "leave pixels to the loop",
        )
    cache, call = episode.trajectory.cache, episode.trajectory.turns[0].calls[0]
    if cache.hits + cache.misses > len(episode.trajectory.initial_frames):
        raise fail(
            "frames decoded for an observation that was refused",
            cache.hits + cache.misses,
            "decode nothing in the method",
        )
    if call.ok or call.frames:
        raise fail("a call whose observation was refused is recorded as executed", call, "leave `ok` to the loop")


# ------------------------------------------------------------------------------------------------------- observations


def _refused(subject: Subject, name: str, code: CallErrorCode, words: str = "told why") -> ToolOutcome:
    """A call that was not carried out, with the arguments of one that was; a malformed one holds only its text."""
    known = subject.calls.records.get(name)
    is_read = known is not None and code not in (CallErrorCode.MALFORMED_CALL, CallErrorCode.UNKNOWN_TOOL)
    arguments = dict(known[0].arguments) if known is not None and is_read else {"text": "x"}
    return ToolOutcome(CallRecord(name=name, arguments=arguments, ok=False, error=CallError(code, words)))


def _shown(subject: Subject) -> list[ToolOutcome]:
    """An executed call of each tool, from its record, with images that are not decoded."""
    outcomes = []
    for name, records in subject.calls.records.items():
        for record in records[:1]:
            images = tuple(ImagePart(frame) for frame in record.frames)
            outcomes.append(ToolOutcome(copy.deepcopy(record), images, subject.info))
            assert record.name == name
    return outcomes


@holds("episode", requires=("tools_of_any_video",))
def observations_answer_anything(subject: Subject) -> None:
    """`observe` answers calls that were executed, refused for each reason or failed, because all of them happen."""
    names = subject.tool_names or ("unknown",)
    cases = [[_refused(subject, name, code)] for name in (*names, "unknown") for code in CallErrorCode]
    cases += [[outcome] for outcome in _shown(subject)]
    if not subject.tool_names:
        raise NotApplicable("the method has no tools, so nothing is observed")
    for outcomes in cases:
        with_video = [replace(outcome, video=subject.info) for outcome in outcomes]
        for turns_left in range(1, subject.method.max_turns):
            try:
                content: Any = subject.method.observe(with_video, turns_left)
            except Exception as error:
                raise fail(
                    f"observe raises with {turns_left} turns left for {outcomes[0].record!r:.200}", error, "answer it"
                ) from error
            if not isinstance(content, tuple) or not all(isinstance(part, str | ImagePart) for part in content):
                raise fail("observe gives", content, "return a tuple of texts and ImageParts")


@holds("episode", requires=("observations_answer_anything",))
def observations_are_pure(subject: Subject) -> None:
    """`observe` gives the same again and changes no record, because it is asked again after frames were decoded."""
    outcomes = [*_shown(subject), *(_refused(subject, name, CallErrorCode.OUT_OF_RANGE) for name in subject.tool_names)]
    for outcome in outcomes:
        before = copy.deepcopy(outcome.record)
        first, again = (subject.method.observe([outcome], 1) for _ in range(2))
        if first != again:
            raise fail("observe differs from call to call", content_text(again), "keep and draw nothing")
        if outcome.record != before:
            raise fail("observe changed the record of the call", outcome.record, "read it only")


@holds("episode", requires=("observations_are_pure", "a_valid_call_of_each_tool_is_found"))
def observations_show_the_frames_of_the_call(subject: Subject) -> None:
    """An observation shows each frame of its call once and in order, because the record says that these were shown."""
    for outcome in _shown(subject):
        shown = [image.record for image in content_images(subject.method.observe([outcome], 1))]
        if shown != outcome.record.frames:
            got = [frame.index for frame in shown]
            wanted = [frame.index for frame in outcome.record.frames]
            raise fail(
                f"frames that the observation of {outcome.record.name} shows, of {wanted}",
                got,
                "put in each image once",
            )


@holds("episode", requires=("observations_are_pure", "a_valid_call_of_each_tool_is_found"))
def observations_tell_the_text_of_the_call(subject: Subject) -> None:
    """An observation holds the text of its call, because rewards count an executed call as told."""
    outcomes = [outcome for outcome in _shown(subject) if (outcome.record.text or "").strip()]
    if not outcomes:
        raise NotApplicable("no call of an example tells a text")
    for outcome in outcomes:
        text, told = str(outcome.record.text), content_text(subject.method.observe([outcome], 1))
        if text.strip() not in told:
            raise fail(
                f"the observation of {outcome.record.name} lacks its text {text!r:.120}",
                told,
                "pass what is shown of a call through `toolkit.with_text`",
            )


@holds("episode", requires=("observations_show_the_frames_of_the_call", "parse_depends_on_the_text_alone"))
def observations_answer_every_call(subject: Subject) -> None:
    """Where a turn may hold two calls its observation shows the frames of both, because the record says so."""
    outcomes, turn = _shown(subject), subject.call_turn()
    if sum(call.error is None for call in subject.method.parse(turn + turn).calls) < 2:
        raise NotApplicable("a turn holds one call")
    for first in outcomes:
        for second in outcomes:
            content = subject.method.observe([first, copy.deepcopy(second)], 1)
            shown = [image.record for image in content_images(content)]
            wanted = [*first.record.frames, *second.record.frames]
            if shown != wanted:
                told = f"frames shown for a turn that calls {first.record.name} and {second.record.name}, of "
                told += str([frame.index for frame in wanted])
                raise fail(told, [frame.index for frame in shown], "answer each of `outcomes`, in order")


@holds("episode", requires=("observations_show_the_frames_of_the_call",))
def observations_tell_true_times(subject: Subject) -> None:
    """A number beside a frame of an observation is its time, its index or its place, because the policy calls by it."""
    for outcome in _shown(subject):
        if fault := false_label(subject.method.observe([outcome], 1)):
            raise fail(
                f"a label in the observation of {outcome.record.name}: {fault}",
                outcome.record.frames[:2],
                "write image.record's",
            )


@holds("episode", requires=("observations_are_pure",))
def refusals_say_why(subject: Subject) -> None:
    """The observation of a refused call holds its reason, because a policy can only correct what it reads."""
    if subject.method.end_on_call_error:
        raise NotApplicable("a refused call ends the rollout")
    words = "the segment 17.25 to 3.5 ends before it starts"
    for name in subject.tool_names:
        told = content_text(subject.method.observe([_refused(subject, name, CallErrorCode.REVERSED_SEGMENT, words)], 1))
        if words not in told:
            raise fail(
                f"the observation of a refused call of {name} does not hold {words!r}",
                told,
                "write `toolkit.format_error`",
            )


@holds("episode", requires=("observations_are_pure",))
def failures_hide_the_file(subject: Subject) -> None:
    """A failed call's observation does not repeat the error's words, because a file's name may tell the answer."""
    secret = "/videos/the_answer_is_B.mp4"
    for name in subject.tool_names:
        for code in sorted(FAILURE_CODES):
            told = content_text(subject.method.observe([_refused(subject, name, code, f"cannot open {secret}")], 1))
            if secret in told:
                raise fail(
                    f"the observation of a call of {name} that failed ({code}) names the file",
                    told,
                    "use `toolkit.format_error`",
                )


@holds("episode", requires=("rollouts_end", "plans_do_not_read_the_truth", "observations_are_pure"))
def observations_hide_the_truth(subject: Subject) -> None:
    """An observation does not depend on the truth or its place, because the policy would learn to read them."""
    turn, sample = subject.call_turn(), subject.sample
    changed = with_other_truth(sample)
    told = [_first_observation(subject, turn, each) for each in (sample, changed)]
    if told[0] != told[1]:
        raise fail("the observation of a call changes with the truth of the row", told[1], "read nothing of the truth")


def _first_observation(subject: Subject, turn: str, sample: object) -> tuple[str | None, list[int]]:
    rollout = subject.run([turn], sample)  # type: ignore[arg-type]
    return rollout.turns[0].observation, [frame.index for call in rollout.calls() for frame in call.frames]


@holds("episode", requires=("rollouts_end", "observations_are_pure"))
def executed_calls_are_answered(subject: Subject) -> None:
    """An executed call has an observation that shows or tells something, because rewards count such calls."""
    for rollout in subject.rollouts:
        _check_calls(rollout)


def _check_calls(rollout: Rollout) -> None:
    for turn in rollout.trajectory.turns:
        for call in turn.calls:
            if call.ok and (turn.observation is None or not (call.frames or call.result or turn.observation.strip())):
                raise fail(
                    f"an executed call of a rollout of the kind {rollout.kind!r} shows nothing",
                    call,
                    "refuse it instead",
                )
            if not call.ok and (call.frames or call.error is None):
                raise fail(
                    f"a refused call of a rollout of the kind {rollout.kind!r}", call, "leave records to the loop"
                )
