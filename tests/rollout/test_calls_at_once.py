"""Calls of one turn run at the same time; what is seen, recorded and replayed of them is in the order of the text."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from tests.talking_method import ANSWER, Talking, call, calls, sample
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import CallErrorCode, CallRejected, ToolModelError
from verl_video_tools.core.types import (
    Content,
    ModelLimits,
    ModelReply,
    RecordedByCall,
    StopReason,
    ToolContext,
    ToolDescription,
    ToolModel,
    ToolPlan,
    Trajectory,
    content_text,
)
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy
from verl_video_tools.services.tool_model import recorded_exchanges, recorded_tool_model

NUM_CALLS = 8


@dataclass
class Ask:
    """Asks its question as often as it is told to, and first waits for as many turns of the event loop."""

    name: ClassVar[str] = "ask"
    description: ClassVar[ToolDescription] = ToolDescription(
        name=name, description="Asks.", parameters={"question": ("string", "The question.")}
    )

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        for _ in range(arguments.get("wait", 0)):
            await asyncio.sleep(0)
        if arguments.get("broken"):
            raise ZeroDivisionError("a fault of the tool")
        assert context.model is not None
        replies = [
            (await context.model.ask([arguments["question"]], 1000.0)).text for _ in range(arguments.get("times", 1))
        ]
        return ToolPlan(text=" ".join(replies))


@dataclass
class WaitsForAll:
    """A model that replies to nobody before so many have asked; only calls that run at the same time end."""

    number: int
    faults: dict[str, Exception] = field(default_factory=dict)
    limits: ModelLimits = field(default_factory=lambda: ModelLimits(calls=100))
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._all = asyncio.Event()

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        question = content_text(content)
        self.asked.append(question)
        if len(self.asked) >= self.number:
            self._all.set()
        order = len(self.asked)
        await self._all.wait()
        if question in self.faults:
            raise self.faults[question]
        return ModelReply(f"{question}: reply {order}", "m")


async def run(
    video: str, turn: str, model: ToolModel | RecordedByCall[ToolModel], monkeypatch: pytest.MonkeyPatch
) -> Trajectory:
    monkeypatch.setattr(Talking, "more", {Ask.name: Ask()})
    method = Talking(initial_frames=4, max_calls_per_turn=NUM_CALLS, end_on_call_error=False)
    async with asyncio.timeout(20):  # a model that waits for ever
        return await Episode(method, sample(video), tool_model=model).run(ScriptedPolicy([turn, ANSWER]))


def asking(waits: list[int], **arguments: Any) -> str:
    return calls(*[call("ask", question=f"q{place}", wait=wait, **arguments) for place, wait in enumerate(waits)])


async def test_a_turn_of_many_questions_waits_once(make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last call asks first; the observation and the record keep the order of the text."""
    model = WaitsForAll(NUM_CALLS)
    trajectory = await run(make_video(), asking(list(range(NUM_CALLS))[::-1]), model, monkeypatch)
    assert trajectory.stop_reason is StopReason.ANSWER and trajectory.flags == []
    assert model.asked == [f"q{place}" for place in range(NUM_CALLS)][::-1]
    texts = [f"q{place}: reply {NUM_CALLS - place}" for place in range(NUM_CALLS)]
    assert [record.text for record in trajectory.calls()] == texts
    observation = str(trajectory.turns[0].observation)
    assert [observation.index(text) for text in texts] == sorted(observation.index(text) for text in texts)


async def test_a_call_that_fails_leaves_the_others_alone(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = {
        "q1": ToolModelError("down"),
        "q2": CallRejected(CallErrorCode.NO_REPLY, "no words"),
        "q3": ToolModelError("down, too"),
    }
    trajectory = await run(make_video(), asking([3, 2, 1, 0]), WaitsForAll(4, faults), monkeypatch)
    assert [record.ok for record in trajectory.calls()] == [True, False, False, False]
    assert trajectory.flags == ["model_error", "model_error"]


async def test_a_fault_of_a_tool_is_told_after_the_other_calls_have_ended(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = WaitsForAll(2)
    turn = calls(
        call("ask", question="q0", broken=True), call("ask", question="q1"), call("ask", question="q2", wait=9)
    )
    with pytest.raises(ZeroDivisionError, match="a fault of the tool"):
        await run(make_video(), turn, model, monkeypatch)
    assert model.asked == ["q1", "q2"]


@pytest.mark.parametrize("limit", [100, 5])
async def test_replies_are_replayed_to_the_call_that_got_them(
    limit: int, make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ask the same, so that only the call tells the replies apart; and when the calls ask differs in the replay.
    With a limit, some calls were refused, and the same ones are refused again."""
    video = make_video()
    questions = [call("ask", question="what?", wait=wait, times=2) for wait in (5, 0, 3, 1)]
    model = WaitsForAll(4, limits=ModelLimits(calls=limit))
    trajectory = await run(video, calls(*questions), model, monkeypatch)
    recorded = Trajectory.from_dict(trajectory.to_dict())
    stand_in = recorded_tool_model(recorded_exchanges(recorded))
    monkeypatch.setattr(asyncio, "sleep", _no_wait)
    again = await run(video, calls(*questions), stand_in, monkeypatch)
    assert [record.text for record in again.calls()] == [record.text for record in trajectory.calls()]
    assert [record.error for record in again.calls()] == [record.error for record in trajectory.calls()]
    assert len({record.text for record in trajectory.calls()}) > 1
    assert any(record.error for record in trajectory.calls()) == (limit == 5)


async def _no_wait(_: float) -> None:
    return None
