"""One question about a video to a served model, with the method's own loop, told while it goes on."""

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

_MOST_TIMES, _MOST_CHARACTERS = 8, 2000


async def ask(
    question: str,
    video: str,
    method: Method,
    policy: PolicyConfig,
    page: Path,
    tell: Callable[[str], None],
    *,
    seed: int | None = None,
    retriever: Retriever | None = None,
    tool_model: ToolModelConfig | None = None,
) -> Trajectory:
    """Ask, and tell each turn, its calls and what they showed as soon as they are there.

    Args:
        question: the whole text that the model reads, options included.
        video: path of the video file.
        policy: without a model's name, the first that the endpoint lists.
        page: HTML file to draw the rollout in, as `vvt view` draws recorded ones. Its folder is made.
        tell: called with each line of the account.
        retriever: for methods that find frames by text.
        tool_model: for methods whose tools ask a model.

    Returns:
        The rollout. One that failed has flags, and says why in `error`.

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
    account = _Account(tell)
    sample = Sample(question=question, ground_truth="", video_path=video, question_type="open")
    async with AsyncExitStack() as stack:
        lister = await stack.enter_async_context(ChatPolicy(policy))
        if policy.model is None:
            policy = replace(policy, model=(await lister.client.served_models())[0])
        chat = await stack.enter_async_context(ChatPolicy(policy))
        await chat.check_usable()
        asked_model = None if tool_model is None else await stack.enter_async_context(EndpointToolModel(tool_model))
        run = method.for_session(0, 1, validate=True)
        rollout = await chat.rollout(
            run, sample, seed=seed, retriever=retriever, tool_model=asked_model, watch=account.shown
        )
        if rollout.trajectory.flags:
            await chat.check_usable()
    account.end(rollout.trajectory)
    line = {"trajectory": rollout.trajectory, "extra_info": {"video_path": video}}
    await asyncio.to_thread(write_rollout, line, page, title=f"{method.name}: {question}")
    tell(f"page: {page}")
    return rollout.trajectory


@dataclass
class _Account:
    """What is told of a rollout."""

    tell: Callable[[str], None]
    _num_turns_shown: int = field(default=0, init=False)

    def shown(self, trajectory: Trajectory, messages: Sequence[Message]) -> None:
        """The model is about to read the newest messages of the rollout."""
        if not trajectory.turns:
            self.tell(f"initial frames: {_frames(trajectory.initial_frames)}")
        self._tell_turns(trajectory)

    def end(self, trajectory: Trajectory) -> None:
        """What is left to tell of a finished rollout."""
        self._tell_turns(trajectory)
        if trajectory.answer is not None:
            self.tell(f"answer: {plain(trajectory.answer)}")
        elif not trajectory.flags:
            self.tell(f"no answer; the rollout ended with {trajectory.stop_reason}")

    def _tell_turns(self, trajectory: Trajectory) -> None:
        for number, turn in enumerate(trajectory.turns[self._num_turns_shown :], self._num_turns_shown + 1):
            self.tell(f"turn {number}: {plain(_thought(turn))}")
            for call in turn.calls:
                self.tell(f"  {plain(call.name)} {plain(json.dumps(call.arguments, ensure_ascii=False))}")
                self.tell(f"    {_result(call)}")
        self._num_turns_shown = len(trajectory.turns)


def plain(text: str) -> str:
    """On one line, cut where it is very long, and without characters that would steer a terminal."""
    line = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]} ..."


def _thought(turn: Turn) -> str:
    """Why the model does what it does; the whole turn where it cannot be told apart and neither calls nor answers."""
    thought = turn.thought or turn.reasoning
    if thought is None and not turn.calls and turn.answer is None:
        return turn.text
    return thought or ""


def _result(call: CallRecord) -> str:
    if call.error is not None:
        return f"refused: {plain(str(call.error))}"
    parts = [_frames(call.frames)] if call.frames else []
    if call.text is not None:
        parts.append(plain(call.text))
    return "; ".join(parts) or "done"


def _frames(records: Sequence[FrameRecord]) -> str:
    """Their number, and numbers in the video and times; of many the first and the last."""
    frames = [f"{record.index} ({record.timestamp_seconds:.2f} s)" for record in records]
    if not frames:
        return "none"
    listed = ", ".join(frames) if len(frames) <= _MOST_TIMES else f"{frames[0]} to {frames[-1]}"
    regions = {record.region for record in records if record.region is not None}
    shown = f"{len(frames)} frame{'s' if len(frames) > 1 else ''}: {listed}"
    return shown + "".join(f", pixels {list(region)}" for region in sorted(regions))
