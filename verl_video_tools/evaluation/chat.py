"""One question about a video to a served model in the method's loop, printed while the rollout runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from verl_video_tools.core.errors import UsageError, writing
from verl_video_tools.core.messages import Message
from verl_video_tools.core.types import CallRecord, FrameRecord, Method, Retriever, Sample, Trajectory, Turn
from verl_video_tools.records.view import write_rollout
from verl_video_tools.rollout.chat_policy import ChatPolicy, PolicyConfig
from verl_video_tools.services.tool_model import EndpointToolModel, ToolModelConfig

_MAX_TIMES, _MAX_CHARACTERS = 8, 2000


async def ask(
    question: str,
    video: str,
    method: Method,
    policy: PolicyConfig,
    page: Path,
    report: Callable[[str], None],
    *,
    seed: int | None = None,
    retriever: Retriever | None = None,
    tool_model: ToolModelConfig | None = None,
) -> Trajectory:
    """Ask, and report each turn with its calls and their results as soon as it is finished.

    Args:
        question: the whole question, options included.
        video: path of the video file.
        policy: without a model's name, the first model that the endpoint lists is asked.
        page: HTML file to draw the rollout in, as `vvt view` draws recorded ones. Its folder is made.
        report: called with each line of text.
        retriever: for methods that search for frames by text.
        tool_model: for methods whose tools ask a model.

    Returns:
        The rollout. If it failed, it has flags and an `error`.

    Raises:
        UsageError: the method needs a retriever or a tool model, and there is none; or the page cannot be written.
        EndpointError: the endpoint cannot be reached, refuses an option of sampling, or lists no model.
    """
    if method.searches and retriever is None:
        raise UsageError(f"{method.name} searches for frames by text; name its encoder: --retrieval model=DIR")
    if method.asks_model and tool_model is None:
        raise UsageError(f"tools of {method.name} ask a model; name its endpoint: --tool-model base_url=URL")
    with writing(page.parent, "give another --out"):
        page.parent.mkdir(parents=True, exist_ok=True)
    printer = _TurnPrinter(report)
    sample = Sample(question=question, ground_truth="", video_path=video, question_type="open")
    async with AsyncExitStack() as stack:
        if policy.model is None:
            async with ChatPolicy(policy) as lister:
                policy = replace(policy, model=(await lister.client.served_models())[0])
        chat = await stack.enter_async_context(ChatPolicy(policy))
        await chat.check_usable()
        tool_client = None if tool_model is None else await stack.enter_async_context(EndpointToolModel(tool_model))
        run = method.for_session(0, 1, validate=True)
        rollout = await chat.rollout(
            run, sample, seed=seed, retriever=retriever, tool_model=tool_client, watch=printer.before_turn
        )
        if rollout.trajectory.flags:
            await chat.check_usable()
    printer.end(rollout.trajectory)
    line = {"trajectory": rollout.trajectory, "extra_info": {"video_path": video}}
    await asyncio.to_thread(write_rollout, line, page, title=f"{method.name}: {question}")
    report(f"page: {page}")
    return rollout.trajectory


@dataclass
class _TurnPrinter:
    """Reports the turns of a rollout."""

    report: Callable[[str], None]
    _num_reported: int = field(default=0, init=False)

    def before_turn(self, trajectory: Trajectory, messages: Sequence[Message]) -> None:
        """The model is about to read the newest messages of the rollout."""
        if not trajectory.turns:
            self.report(f"initial frames: {_frames(trajectory.initial_frames)}")
        self._report_turns(trajectory)

    def end(self, trajectory: Trajectory) -> None:
        """The rollout is finished."""
        self._report_turns(trajectory)
        if trajectory.answer is not None:
            self.report(f"answer: {plain(trajectory.answer)}")
        elif not trajectory.flags:
            self.report(f"no answer; the rollout ended with {trajectory.stop_reason}")

    def _report_turns(self, trajectory: Trajectory) -> None:
        for number, turn in enumerate(trajectory.turns[self._num_reported :], self._num_reported + 1):
            self.report(f"turn {number}: {plain(_thought(turn))}")
            for call in turn.calls:
                self.report(f"  {plain(call.name)} {plain(json.dumps(call.arguments, ensure_ascii=False))}")
                self.report(f"    {_result(call)}")
        self._num_reported = len(trajectory.turns)


def plain(text: str) -> str:
    """On one line, shortened, and without control characters of a terminal."""
    line = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]} ..."


def _thought(turn: Turn) -> str:
    """The model's reasoning; the whole turn, in which something was not read, if it has neither calls nor answer."""
    if not turn.calls and turn.answer is None and turn.text:
        return turn.text
    return turn.thought or turn.reasoning or ""


def _result(call: CallRecord) -> str:
    if call.error is not None:
        return f"refused: {plain(str(call.error))}"
    parts = [_frames(call.frames)] if call.frames else []
    if call.text is not None:
        parts.append(plain(call.text))
    return "; ".join(parts) or "done"


def _frames(records: Sequence[FrameRecord]) -> str:
    """The number of frames, with indices and times; of many frames only the first and the last."""
    frames = [f"{record.index} ({record.timestamp_seconds:.2f} s)" for record in records]
    if not frames:
        return "none"
    listed = ", ".join(frames) if len(frames) <= _MAX_TIMES else f"{frames[0]} to {frames[-1]}"
    regions = {record.region for record in records if record.region is not None}
    text = f"{len(frames)} frame{'s' if len(frames) > 1 else ''}: {listed}"
    return text + "".join(f", pixels {list(region)}" for region in sorted(regions))
