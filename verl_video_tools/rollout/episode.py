"""A rollout without a model: what the environment does between two assistant turns.

`Episode` is the single place where turns are parsed, calls executed, budgets checked, records written and stop reasons
decided. The token-level loop, `vvt replay`, the writers of training data and the evaluation are policies that
`Episode.run` calls, so they cannot disagree. Tokens are the business of the `BudgetCheck`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from verl_video_tools.core.errors import (
    INTACT_CODES,
    CallError,
    CallErrorCode,
    CallRejected,
    DeadlineError,
    PolicyError,
    RetrievalError,
    RowError,
    ToolModelError,
    UsageError,
    VideoError,
)
from verl_video_tools.core.prompts import prompt_digest
from verl_video_tools.core.types import (
    CallRecord,
    Content,
    FrameRecord,
    FrameRequest,
    ImagePart,
    Message,
    Method,
    ModelCall,
    ParsedTurn,
    PixelEnvelope,
    RecordedByCall,
    Retriever,
    Sample,
    ShownFrame,
    StopReason,
    Tool,
    ToolCall,
    ToolContext,
    ToolModel,
    ToolOutcome,
    ToolPicture,
    ToolPlan,
    Trajectory,
    Turn,
    Verification,
    VideoInfo,
    content_images,
    content_text,
    with_pixels,
)
from verl_video_tools.rollout.observation import (
    RolloutVideos,
    context_of,
    decoded_picture_prompt,
    escape_special_tokens,
    initial_requests,
    made_pictures,
    planned_picture_prompt,
    prompt_messages,
    shown_frames,
)
from verl_video_tools.rollout.policy import AnswersDetached, BudgetCheck, Policy
from verl_video_tools.services.retrieval import RecordingRetriever
from verl_video_tools.services.tool_model import RecordingToolModel, Spent

_TakeFrames = Callable[[FrameRequest], Awaitable[tuple[ImagePart, ...]]]
_Result = TypeVar("_Result")
_Flagged = tuple[_Result, CallErrorCode | None]
"""What a step of a call gives, and the failure, not the policy's, that flags the rollout."""


@dataclass(eq=False)
class Episode:
    """One rollout of `method` on `sample`.

    `run` makes the whole rollout. A caller that needs only the prompt calls `start`. A caller that supplies the turns
    itself then calls `step` with each assistant turn until it returns None.
    """

    method: Method
    sample: Sample
    envelope: PixelEnvelope = field(default_factory=PixelEnvelope)
    """Sizes that the model's processor does not change; the default means that there is no processor."""
    budget: BudgetCheck | None = None
    """The check that runs before pixels are decoded; None means no limits."""
    retriever: Retriever | RecordedByCall[Retriever] | None = None
    """For tools that search frames by text."""
    group: Sequence[Method] = ()
    """Configs of the rollouts of the group, where they differ. What their initial frames take from the stretches of
    video that this one decodes goes into the frame cache along with it, so that a group decodes once."""
    tool_model: ToolModel | RecordedByCall[ToolModel] | None = None
    """The model that tools may ask."""

    trajectory: Trajectory = field(init=False)
    previous_frames: tuple[ShownFrame, ...] = field(default=(), init=False)
    """Every image of the rollout so far, including those that a context policy drops from later turns."""
    _videos: RolloutVideos = field(init=False)
    _tools: Mapping[str, Tool] = field(default_factory=dict, init=False)
    """None without a video."""
    _spent: Spent = field(default_factory=Spent, init=False)

    def __post_init__(self) -> None:
        self.trajectory = Trajectory(
            method=self.method.name,
            question=self.sample.question,
            prompt_digest=prompt_digest(self.method.prompt_file),
            provenance=self.method.provenance(),
        )
        self._videos = RolloutVideos(self.method.tool_deadline_seconds, self.trajectory.cache)

    async def run(self, policy: Policy) -> Trajectory:
        """Make the whole rollout with the turns that `policy` gives; `stop_reason` says why it ended.

        Raises:
            Exception: any exception of the policy except a `PolicyError`, which aborts the rollout.
        """
        dialogue: list[Message] = []
        messages = await self.start()
        while messages is not None:
            dialogue += messages
            try:
                turn = await policy.turn(messages)
            except PolicyError as error:
                self.abort(str(error))
                break
            if turn is None:
                self._end(StopReason.SCRIPT_EXHAUSTED)
                break
            dialogue.append(Message("assistant", (turn.text,)))
            observation = await self.step(turn.text, turn.truncated, turn.reasoning)
            messages = None if observation is None else [Message("user", observation)]
        await self._verify(policy, dialogue)
        return self.trajectory

    # -------------------------------------------------------------------------------------------------- initial frames

    async def start(self) -> list[Message] | None:
        """Open the videos and return the prompt with the initial frames; None if the rollout ends here."""
        method, sample = self.method, self.sample
        if not sample.videos:
            return await self._start_without_video()
        if len(sample.videos) > 1 and not method.asks_about_several_videos:
            self.abort(f"{method.name} does not ask about several videos, and the row has {len(sample.videos)}")
            return None
        try:
            await self._videos.open(sample.videos)
            infos = [video.info for video in self._videos.opened]
            # A selector may ask no model: the record of the initial frames has no place for that.
            context = self._tool_context(0, self.trajectory.retrieved_frames, None)
            requests = await initial_requests(method, sample, self.envelope, context)
            planned = [image for request in requests for image in await self._videos.planned(request)]
            messages = prompt_messages(method, sample, infos, planned)
            if await self._exceeds_budget(messages, infos[0]):  # checked before anything is decoded
                return None
            prefetch: tuple[FrameRequest, ...] = ()
            if len(requests) == 1 and method.initial_frames_selector is None:  # else the group's are not known
                different = {id(member): member for member in self.group}.values()
                of_group = {member.plan_initial_frames(infos[0], sample, self.envelope) for member in different}
                prefetch = tuple(of_group.difference(requests))
            images = [image for request in requests for image in await self._videos.decode(request, prefetch)]
        except VideoError as error:
            self._end_with_video_error(error)
            return None
        except RetrievalError as error:
            self.abort(str(error))
            return None
        is_as_planned = [image.record for image in images] == [image.record for image in planned]
        if not is_as_planned:  # another frame replaces a damaged one, and labels name what is shown
            messages = prompt_messages(method, sample, infos, images)
        messages = [Message(message.role, with_pixels(message.content, images)) for message in messages]
        if not is_as_planned and await self._exceeds_budget(messages, infos[0]):
            return None
        self.trajectory.video = infos[0]
        self.trajectory.more_videos = infos[1:]
        self.trajectory.initial_frames = [image.record for image in images]
        self._tools = method.tools(infos[0])
        self.previous_frames += shown_frames([message.content for message in messages], turn=0)
        return messages

    async def _start_without_video(self) -> list[Message] | None:
        """The prompt of a row with images, or with neither images nor a video. No tool can show more."""
        try:
            messages = await planned_picture_prompt(self.method, self.sample, self.envelope)
            if await self._exceeds_budget(messages, None):  # checked before anything is decoded
                return None
            messages = await decoded_picture_prompt(messages, self.sample, self.envelope)
        except (RowError, UsageError) as error:
            self.abort(str(error))
            return None
        images = [image for message in messages for image in content_images(message.content)]
        self.trajectory.visuals = "images" if images else "none"
        self.trajectory.initial_frames = [image.record for image in images]
        self.previous_frames += shown_frames([message.content for message in messages], turn=0)
        return messages

    async def _exceeds_budget(self, prompt: Sequence[Message], info: VideoInfo | None) -> bool:
        """End the rollout if its prompt does not fit. Long texts take seconds to count, so a thread does."""
        reason = None if self.budget is None else await asyncio.to_thread(self.budget.refuses_prompt, prompt)
        if reason is None:
            return False
        num_frames = sum(len(content_images(message.content)) for message in prompt)
        self.trajectory.video = info
        self.trajectory.flags.append(reason.value)  # on a ladder others of the group may fit; none chose its frames
        self._end(reason, error=f"the prompt with {num_frames} frames does not fit")
        return True

    # ----------------------------------------------------------------------------------------------------------- turns

    async def step(self, text: str, truncated: bool = False, reasoning: str | None = None) -> Content | None:
        """Take one assistant turn.

        Args:
            text: the turn without its end-of-turn token.
            truncated: the turn was cut by its token limit. Its calls are refused, but a complete answer counts.
            reasoning: native reasoning that was separated from the turn (`core.reasoning`). It is recorded, but not
                parsed.

        Returns:
            The observation to append as a user message, or None if the rollout has ended.
        """
        parsed = self.method.parse(text)
        if truncated and parsed.answer_is_open:
            parsed = replace(parsed, answer=None)
        turn = Turn(
            text=text,
            thought=parsed.thought,
            answer=parsed.answer,
            well_formed=parsed.well_formed,
            truncated=truncated,
            reasoning=reasoning,
        )
        self.trajectory.turns.append(turn)

        if parsed.answer is not None:
            self.trajectory.answer = parsed.answer
            self._refuse(parsed, CallErrorCode.TURN_LIMIT, "the same turn already answers")
            self._end(StopReason.ANSWER)
            return None
        if truncated:
            self._refuse(parsed, CallErrorCode.RESPONSE_BUDGET, "the turn was cut at its token limit")
            self._end(StopReason.RESPONSE_BUDGET)
            return None
        if not self.method.continues_after(parsed):
            self._refuse(parsed, CallErrorCode.TURN_LIMIT, "the turn does not ask for another one")
            self._end(StopReason.NO_ACTION)
            return None
        turns_left = self.method.max_turns - len(self.trajectory.turns)
        if turns_left <= 0:
            self._refuse(parsed, CallErrorCode.TURN_LIMIT, f"this was the last of {self.method.max_turns} turns")
            self._end(StopReason.MAX_TURNS)
            return None
        return await self._execute(parsed, turn, turns_left)

    def abort(self, error: str) -> None:
        """End the rollout for a reason that is not the policy's fault, and keep it out of training."""
        self.trajectory.flags.append("aborted")
        self._end(StopReason.ABORTED, error=error)

    # ------------------------------------------------------------------------------------------------------- internals

    async def _execute(self, parsed: ParsedTurn, turn: Turn, turns_left: int) -> Content | None:
        first = 1 + sum(len(turn.calls) for turn in self.trajectory.turns)
        plans = await self._at_once(self._plan(number, call) for number, call in enumerate(parsed.calls, first))
        turn.calls = [plan.record for plan in plans]
        if self.method.end_on_call_error and any(call.refused() for call in turn.calls):
            self._fail(turn.calls, CallErrorCode.NOT_EXECUTED, "another call of the turn was refused")
            self._end(StopReason.INVALID_ACTION)
            return None

        planned = await self._at_once(self._take(plan, self._videos.planned) for plan in plans)
        observation = escape_special_tokens(self.method.observe(planned, turns_left))
        if reason := await self._refuses(observation):  # checked before anything is decoded
            self._fail(turn.calls, CallErrorCode(reason), "does not fit")
            if self.method.ends_on_budget() or not turn.calls:  # no refusal can take the place of an answer to no call
                self._end(reason)
                return None
            plans = [_PlannedCall(record) for record in turn.calls]
            planned = []

        outcomes = await self._at_once(self._take(plan, self._videos.decode) for plan in plans)
        errors = [record.error for record in turn.calls if record.error is not None and record.failed()]
        lost = [error for error in errors if error.code not in INTACT_CODES]
        if self.method.end_on_call_error and lost:
            self._fail(turn.calls, CallErrorCode.NOT_EXECUTED, "another call of the turn failed")
            self._end_with_video_error(lost[0])
            return None
        images = [image for outcome in outcomes for image in (*outcome.pictures, *outcome.images)]
        is_as_planned = _records(outcomes) == _records(planned)
        if not is_as_planned:  # a call was refused or failed, or another frame replaces a damaged one
            observation = escape_special_tokens(self.method.observe(outcomes, turns_left))
        observation = with_pixels(observation, images)
        if not is_as_planned and (reason := await self._refuses(observation)):
            self._fail(turn.calls, CallErrorCode(reason), "does not fit")
            self._end(reason)
            return None
        turn.observation = content_text(observation)
        self.previous_frames += shown_frames([observation], turn=len(self.trajectory.turns))
        if reason := self.method.stop_reason_after(self.trajectory):
            self._end(reason)
            return None
        return observation

    async def _refuses(self, observation: Content) -> StopReason | None:
        if self.budget is None:
            return None
        return await asyncio.to_thread(self.budget.refuses_observation, observation)

    async def _at_once(self, steps: Iterable[Awaitable[_Flagged[_Result]]]) -> list[_Result]:
        """One step of every call of a turn, at the same time. Results and flags are in the order of the text, and no
        call is cancelled because another one failed, even where that is a fault of its tool."""
        ended = await asyncio.gather(*steps, return_exceptions=True)
        results = []
        for each in ended:
            if isinstance(each, BaseException):
                raise each
            result, failure = each
            results.append(result)
            if failure is not None:
                self.trajectory.flags.append(failure.value)
        return results

    async def _plan(self, number: int, call: ToolCall) -> _Flagged[_PlannedCall]:
        started = time.perf_counter()
        failure: CallErrorCode | None = None
        record = CallRecord(name=call.name, arguments=dict(call.arguments), ok=False, error=call.error)
        plan = ToolPlan()
        pictures: tuple[tuple[ImagePart, ToolPicture], ...] = ()
        tool = self._tools.get(call.name)
        if record.error is None and tool is None:
            record.error = CallError(CallErrorCode.UNKNOWN_TOOL, f"no tool is called {call.name!r:.80}")
        if record.error is None and tool is not None:
            try:
                context = self._tool_context(number, record.retrieved_frames, record.model_calls)
                plan = await tool.plan(call.arguments, context)
                pictures = await made_pictures(plan, self.envelope)
                record.ok, record.result, record.text = True, dict(plan.result), plan.text
                record.pictures = [picture for _, picture in pictures]
            except CallRejected as rejection:
                record.error = rejection.error
            except (RetrievalError, ToolModelError, VideoError) as error:  # a tool that asks or looks; not its fault
                failure = failure_code(error)
                record.error = CallError(failure, str(error))
        record.latency_ms = (time.perf_counter() - started) * 1e3
        return _PlannedCall(record, plan.frames, tuple(image for image, _ in pictures)), failure

    def _tool_context(self, number: int, answers: list[list[int]], exchanges: list[ModelCall] | None) -> ToolContext:
        """What a tool or selector may know and ask; `number` as in `RecordedByCall`. The answers of the retriever and
        the exchanges with a model are appended to these lists of its record; None: it may ask no model."""
        infos = tuple(video.info for video in self._videos.opened)
        retriever, model = self.retriever, self.tool_model
        if isinstance(retriever, RecordedByCall):
            retriever = retriever.of_call(number)
        if isinstance(model, RecordedByCall):
            model = model.of_call(number)
        return ToolContext(
            infos[0],
            self.sample,
            self.envelope,
            self._videos.index_at,
            None if retriever is None else RecordingRetriever(retriever, answers),
            previous_frames=self.previous_frames,
            videos=infos,
            decode=self._videos.decode,
            model=None if model is None or exchanges is None else RecordingToolModel(model, self._spent, exchanges),
            times_of=self._videos.times_of,
        )

    async def _take(self, plan: _PlannedCall, take: _TakeFrames) -> _Flagged[ToolOutcome]:
        """Plan or decode the frames of a call. A failure is recorded on it."""
        record, info = plan.record, self.trajectory.video
        if not record.ok:
            return ToolOutcome(record, video=info), None
        if plan.frames is None:
            return ToolOutcome(record, video=info, pictures=plan.pictures), None
        started = time.perf_counter()
        try:
            images = await take(plan.frames)
            record.frames = [image.record for image in images]
            return ToolOutcome(record, images, info, plan.pictures), None
        except VideoError as error:
            failure = failure_code(error)
            self._fail([record], failure, str(error))
            return ToolOutcome(record, video=info), failure
        finally:
            record.latency_ms += (time.perf_counter() - started) * 1e3

    async def _verify(self, policy: Policy, dialogue: Sequence[Message]) -> None:
        """Ask the policy once more after its answer, where the method does (`Method.verification_context`). The request
        is outside the dialogue, and no training sequence holds it."""
        trajectory = self.trajectory
        if trajectory.stop_reason is not StopReason.ANSWER or not isinstance(policy, AnswersDetached):
            return
        context = self.method.verification_context(trajectory, tuple(dialogue))
        if context is None:
            return
        messages = context_of(dialogue, context)
        images = [image.record for message in messages for image in content_images(message.content)]
        verification = trajectory.verification = Verification(images)
        try:
            turn = await policy.detached(messages)
        except PolicyError as error:
            verification.error = str(error)
            self.abort(str(error))
            return
        if turn is None:
            verification.error = "no reply: the request does not fit, or the script has ended"
        else:
            verification.text = turn.text

    def _refuse(self, parsed: ParsedTurn, code: CallErrorCode, why: str) -> None:
        self.trajectory.turns[-1].calls = [
            CallRecord(call.name, dict(call.arguments), ok=False, error=call.error or CallError(code, why))
            for call in parsed.calls
        ]

    @staticmethod
    def _fail(records: Sequence[CallRecord], code: CallErrorCode, why: str) -> None:
        """Fail calls that were planned, perhaps decoded, and are not shown. One that has failed keeps its own error."""
        for record in records:
            if record.ok:
                record.ok, record.error = False, CallError(code, why)
                record.frames, record.result, record.text, record.pictures = [], {}, None, []

    def _end_with_video_error(self, error: VideoError | CallError) -> None:
        # Flagged: the file or the machine failed, so neither this rollout nor the mean of its group should learn
        # from it.
        self.trajectory.flags.append(StopReason.VIDEO_ERROR.value)
        self._end(StopReason.VIDEO_ERROR, error=str(error))

    def _end(self, reason: StopReason, error: str | None = None) -> None:
        self.trajectory.stop_reason, self.trajectory.error = reason, error


class _PlannedCall(NamedTuple):
    """A call's record, the frames that it asks for, and the pictures that its tool has made."""

    record: CallRecord
    frames: FrameRequest | None = None
    pictures: tuple[ImagePart, ...] = ()


def _records(outcomes: Sequence[ToolOutcome]) -> list[list[FrameRecord]]:
    return [[image.record for image in outcome.images] for outcome in outcomes]


def failure_code(error: RetrievalError | ToolModelError | VideoError) -> CallErrorCode:
    """The code of a call that failed through no fault of the policy."""
    if isinstance(error, RetrievalError):
        return CallErrorCode.RETRIEVAL_ERROR
    if isinstance(error, ToolModelError):
        return CallErrorCode.MODEL_ERROR
    return CallErrorCode.DEADLINE if isinstance(error, DeadlineError) else CallErrorCode.VIDEO_ERROR
