"""A rollout without a model: what the environment does between two assistant turns.

`Episode` is the single place where turns are parsed, calls executed, budgets asked, records written and stop reasons
decided. The token-level loop, `vvt replay`, the writers of training data and the evaluation all drive it, so they
cannot disagree. It knows nothing of tokens: a `BudgetCheck` answers for those.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from verl_video_tools.core.errors import (
    CallError,
    CallErrorCode,
    CallRejected,
    DeadlineError,
    RetrievalError,
    VideoError,
)
from verl_video_tools.core.prompt_files import prompt_digest
from verl_video_tools.core.selectors import load_selector
from verl_video_tools.core.types import (
    CallRecord,
    Content,
    FrameRecord,
    FrameRequest,
    ImagePart,
    Message,
    Method,
    ParsedTurn,
    PixelEnvelope,
    Retriever,
    Sample,
    StopReason,
    Tool,
    ToolCall,
    ToolContext,
    ToolOutcome,
    ToolPlan,
    Trajectory,
    Turn,
    VideoInfo,
    content_images,
    content_text,
)
from verl_video_tools.rollout.special_tokens import prompt_messages, spelt_apart
from verl_video_tools.services.retrieval.recorded import RecordingRetriever
from verl_video_tools.video import Video, cache_stats, decode_frames, index_at, open_video

_BUDGET_CODES = {
    StopReason.PROMPT_BUDGET: CallErrorCode.PROMPT_BUDGET,
    StopReason.RESPONSE_BUDGET: CallErrorCode.RESPONSE_BUDGET,
    StopReason.IMAGE_BUDGET: CallErrorCode.IMAGE_BUDGET,
}


class BudgetCheck(Protocol):
    """Says, before a pixel is decoded, whether a message fits. Pictures may come without pixels; sizes are final."""

    def refuses_prompt(self, messages: Sequence[Message]) -> StopReason | None:
        """`PROMPT_BUDGET` or `IMAGE_BUDGET` if the prompt does not fit, else None."""
        ...

    def refuses_observation(self, content: Content) -> StopReason | None:
        """`PROMPT_BUDGET`, `RESPONSE_BUDGET` or `IMAGE_BUDGET` if the observation does not fit, else None."""
        ...


class Episode:
    """One rollout of `method` on `sample`.

    Call `start` once, then `step` with each assistant turn, until either returns None; then
    `trajectory.stop_reason` says why it ended.

    Args:
        envelope: sizes that the model's processor leaves untouched; the default means that no processor is involved.
        budget: asked before pixels are decoded; None means no limits.
        retriever: for tools that find frames by text.
        group: configs of the rollouts of the group, where they differ. What their first looks take from the stretches
            of video that this one decodes goes into the frame cache along with it, so that a group decodes once.
    """

    def __init__(
        self,
        method: Method,
        sample: Sample,
        envelope: PixelEnvelope | None = None,
        budget: BudgetCheck | None = None,
        retriever: Retriever | None = None,
        group: Sequence[Method] = (),
    ) -> None:
        self.method = method
        self.sample = sample
        self.envelope = envelope or PixelEnvelope()
        self.budget = budget
        self.retriever = retriever
        self.group = group
        self.trajectory = Trajectory(
            method=method.name, question=sample.question, prompt_digest=prompt_digest(method.prompt_file)
        )
        self._video: Video | None = None

    # ------------------------------------------------------------------------------------------------------ first look

    async def start(self) -> list[Message] | None:
        """Open the video and give the prompt with its first-look frames; None if the rollout ends here."""
        deadline_seconds = self.method.tool_deadline_seconds
        try:
            self._video = await open_video(self.sample.video_path, deadline_seconds=deadline_seconds)
            info = self._video.info
            request = await self._first_look(self._video)
            planned = prompt_messages(self.method, self.sample, info, planned_images(request, info))
            if await self._has_no_room(planned, info):
                return None
            images = await self._decode(request, deadline_seconds, self._siblings_looks(request))
        except VideoError as error:
            self._end_with_video_error(error)
            return None
        except RetrievalError as error:
            self.abort(str(error))
            return None
        messages = prompt_messages(self.method, self.sample, info, images)
        # The decoder's times can make the text a little longer than planned.
        if await self._has_no_room(messages, info):
            return None
        self.trajectory.video = info
        self.trajectory.initial_frames = [image.record for image in images]
        return messages

    async def _has_no_room(self, prompt: Sequence[Message], info: VideoInfo) -> bool:
        """End the rollout if its prompt does not fit. Long texts take seconds to count, so a thread does."""
        reason = None if self.budget is None else await asyncio.to_thread(self.budget.refuses_prompt, prompt)
        if reason is None:
            return False
        num_frames = sum(len(content_images(message.content)) for message in prompt)
        self.trajectory.video = info
        self.trajectory.flags.append(reason.value)  # on a ladder siblings may fit; none chose its frames
        self._end(reason, error=f"the prompt with {num_frames} frames does not fit")
        return True

    # ----------------------------------------------------------------------------------------------------------- turns

    async def step(self, text: str, truncated: bool = False, reasoning: str | None = None) -> Content | None:
        """Take one assistant turn.

        Args:
            text: the turn without its end-of-turn token.
            truncated: the turn was cut by its token limit; its calls are refused, a complete answer still counts.
            reasoning: native reasoning that was taken from the turn (`core.reasoning`); recorded, and not read.

        Returns:
            The observation to append as a user message, or None if the rollout has ended.
        """
        parsed = self.method.parse(text)
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
        if not self.method.goes_on_after(parsed):
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
        """End the rollout for a reason outside the policy's reach and keep it out of training."""
        self.trajectory.flags.append("aborted")
        self._end(StopReason.ABORTED, error=error)

    def exhaust_script(self) -> None:
        """End a scripted rollout whose script has no further turn."""
        self._end(StopReason.SCRIPT_EXHAUSTED)

    # ------------------------------------------------------------------------------------------------------- internals

    async def _first_look(self, video: Video) -> FrameRequest:
        look = self.method.first_look(video.info, self.sample, self.envelope)
        if self.method.first_look_selector is None:
            return look
        retriever = self._recording_retriever(self.trajectory.retrieved_frames)
        context = self._tool_context(video, retriever)
        select = load_selector(self.method.first_look_selector)
        try:
            chosen = await select(look, context, self.method.tool_deadline_seconds)
        except (RetrievalError, VideoError):
            raise
        except Exception as error:  # a user's own code: raised further, it would cost the whole group its records
            raise RetrievalError(f"{self.method.first_look_selector} failed: {error!r}") from error
        if (chosen.width, chosen.height) != (look.width, look.height) or not 0 < len(chosen) <= len(look):
            raise RetrievalError(
                f"{self.method.first_look_selector} chose {len(chosen)} frames of {chosen.width}x{chosen.height}; "
                f"it may choose 1 to {len(look)} of {look.width}x{look.height}"
            )
        return chosen

    def _siblings_looks(self, request: FrameRequest) -> tuple[FrameRequest, ...]:
        """First looks of the group that differ from this rollout's; unknown where a selector chooses them."""
        if self.method.first_look_selector is not None:
            return ()
        different = {id(method): method for method in self.group}.values()
        looks = {method.first_look(self._opened_video().info, self.sample, self.envelope) for method in different}
        return tuple(looks - {request})

    def _tool_context(self, video: Video, retriever: Retriever | None) -> ToolContext:
        find = partial(index_at, video, self.method.tool_deadline_seconds)
        return ToolContext(video.info, self.sample, self.envelope, find, retriever)

    def _recording_retriever(self, answers: list[list[int]]) -> Retriever | None:
        return None if self.retriever is None else RecordingRetriever(self.retriever, answers)

    async def _execute(self, parsed: ParsedTurn, turn: Turn, turns_left: int) -> Content | None:
        video = self._opened_video()
        tools = self.method.tools(video.info)
        plans = [await self._plan(call, tools.get(call.name)) for call in parsed.calls]
        turn.calls = [record for record, _ in plans]
        if self.method.end_on_call_error and any(not record.ok and not record.failed() for record in turn.calls):
            self._leave_undone(turn, "another call of the turn was refused")
            self._end(StopReason.INVALID_ACTION)
            return None

        if self.budget is not None:  # asked before anything is decoded
            planned = [
                ToolOutcome(record, planned_images(plan.frames, video.info), video.info) for record, plan in plans
            ]
            if reason := await self._refuses(spelt_apart(self.method.observe(planned, turns_left))):
                self._fail([record for record in turn.calls if record.ok], _BUDGET_CODES[reason], "does not fit")
                if self.method.ends_on_budget():
                    self._end(reason)
                    return None
                plans = [(record, ToolPlan()) for record in turn.calls]

        outcomes = [await self._carry_out(record, plan) for record, plan in plans]
        # A search that failed leaves the video and what was shown of it intact, so the model reads that and goes on.
        errors = [record.error for record in turn.calls if record.error is not None and record.failed()]
        lost = [error for error in errors if error.code != CallErrorCode.RETRIEVAL_ERROR]
        if self.method.end_on_call_error and lost:
            self._leave_undone(turn, "another call of the turn failed")
            self._end_with_video_error(lost[0])
            return None
        observation = spelt_apart(self.method.observe(outcomes, turns_left))
        if reason := await self._refuses(observation):
            # Times reported by the decoder can make the text a little longer than planned.
            self._fail([record for record in turn.calls if record.ok], _BUDGET_CODES[reason], "does not fit")
            self._end(reason)
            return None
        turn.observation = content_text(observation)
        if reason := self.method.ends_after(self.trajectory):
            self._end(reason)
            return None
        return observation

    async def _refuses(self, observation: Content) -> StopReason | None:
        if self.budget is None:
            return None
        return await asyncio.to_thread(self.budget.refuses_observation, observation)

    async def _plan(self, call: ToolCall, tool: Tool | None) -> tuple[CallRecord, ToolPlan]:
        started = time.perf_counter()
        record = CallRecord(name=call.name, arguments=dict(call.arguments), ok=False, error=call.error)
        plan = ToolPlan()
        if record.error is None and tool is None:
            record.error = CallError(CallErrorCode.UNKNOWN_TOOL, f"no tool is called {call.name!r}")
        if record.error is None and tool is not None:
            video = self._opened_video()
            retriever = self._recording_retriever(record.retrieved_frames)
            context = self._tool_context(video, retriever)
            try:
                plan = await tool.plan(call.arguments, context)
                record.ok, record.result = True, dict(plan.result)
            except CallRejected as rejection:
                record.error = rejection.error
            except (RetrievalError, VideoError) as error:  # a tool that looks before it chooses; not the policy's fault
                code = _failure_code(error)
                record.error = CallError(code, str(error))
                self.trajectory.flags.append(code.value)
        record.latency_ms = (time.perf_counter() - started) * 1e3
        return record, plan

    async def _carry_out(self, record: CallRecord, plan: ToolPlan) -> ToolOutcome:
        """Decode what was planned. A failure is recorded on the call and flags the rollout: it is not the policy's."""
        info = self._opened_video().info
        if not record.ok or plan.frames is None:
            return ToolOutcome(record, video=info)
        started = time.perf_counter()
        try:
            images = await self._decode(plan.frames, self.method.tool_deadline_seconds)
            record.frames = [image.record for image in images]
            return ToolOutcome(record, images, info)
        except VideoError as error:
            code = _failure_code(error)
            self._fail([record], code, str(error))
            self.trajectory.flags.append(code.value)
            return ToolOutcome(record, video=info)
        finally:
            record.latency_ms += (time.perf_counter() - started) * 1e3

    async def _decode(
        self, request: FrameRequest, deadline_seconds: float, siblings: Sequence[FrameRequest] = ()
    ) -> tuple[ImagePart, ...]:
        batch = await decode_frames(self._opened_video(), request, deadline_seconds=deadline_seconds, siblings=siblings)
        cache = self.trajectory.cache
        cache.hits += batch.num_cached
        cache.misses += len(batch) - batch.num_cached
        cache.stored_bytes = cache_stats().stored_bytes
        return tuple(
            ImagePart(FrameRecord(int(index), float(seconds), request.width, request.height), pixels_HWC)
            for index, seconds, pixels_HWC in zip(
                batch.indices, batch.timestamps_seconds, batch.frames_THWC, strict=True
            )
        )

    def _opened_video(self) -> Video:
        if self._video is None:
            raise RuntimeError("Episode.start() must come before step()")
        return self._video

    def _refuse(self, parsed: ParsedTurn, code: CallErrorCode, why: str) -> None:
        self.trajectory.turns[-1].calls = [
            CallRecord(call.name, dict(call.arguments), ok=False, error=call.error or CallError(code, why))
            for call in parsed.calls
        ]

    def _leave_undone(self, turn: Turn, why: str) -> None:
        """Calls of a turn that nothing answers were planned, perhaps decoded, and never shown: not executed."""
        self._fail([record for record in turn.calls if record.ok], CallErrorCode.NOT_EXECUTED, why)

    @staticmethod
    def _fail(records: Sequence[CallRecord], code: CallErrorCode, why: str) -> None:
        for record in records:
            record.ok, record.error = False, CallError(code, why)
            record.frames, record.result = [], {}

    def _end_with_video_error(self, error: VideoError | CallError) -> None:
        # Flagged: the file or the machine failed, so neither this rollout nor its siblings' mean should learn from it.
        self.trajectory.flags.append(StopReason.VIDEO_ERROR.value)
        self._end(StopReason.VIDEO_ERROR, error=str(error))

    def _end(self, reason: StopReason, error: str | None = None) -> None:
        self.trajectory.stop_reason, self.trajectory.error = reason, error


def _failure_code(error: RetrievalError | VideoError) -> CallErrorCode:
    if isinstance(error, RetrievalError):
        return CallErrorCode.RETRIEVAL_ERROR
    return CallErrorCode.DEADLINE if isinstance(error, DeadlineError) else CallErrorCode.VIDEO_ERROR


def planned_images(request: FrameRequest | None, info: VideoInfo) -> tuple[ImagePart, ...]:
    """Pictures of a request without pixels, for asking what they would cost: right in number and size, and in their
    labels as far as frames are evenly spaced."""
    if request is None:
        return ()
    seconds = request.seconds or tuple(index / info.average_fps for index in request.indices or ())
    indices = request.indices or tuple(min(round(time * info.average_fps), info.num_frames - 1) for time in seconds)
    return tuple(
        ImagePart(FrameRecord(index, time_seconds, request.width, request.height))
        for index, time_seconds in zip(indices, seconds, strict=True)
    )
