"""`Episode.run`: what policies are given, and how rollouts end that no turn ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import verl_video_tools.rollout.observation as videos_module
from tests.turns.framethinker import answer, choose
from tests.turns.tagged import think, tool_call
from tests.verl_plugin.harness import QUESTION, video
from tests.videos.files import write_video
from verl_video_tools.core.errors import PolicyError
from verl_video_tools.core.types import (
    Content,
    FrameRecord,
    Message,
    Sample,
    StopReason,
    content_images,
    content_text,
)
from verl_video_tools.methods import get_method
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import AssistantTurn, BudgetCheck, ScriptedPolicy


def episode() -> Episode:
    return Episode(get_method("framethinker"), Sample(QUESTION, "B", video(), "mc"))


@dataclass
class Listener:
    """Keeps what it is given."""

    turns: list[AssistantTurn]
    heard: list[Sequence[Message]] = field(default_factory=list)

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn | None:
        self.heard.append(messages)
        return self.turns.pop(0) if self.turns else None


async def test_a_policy_is_given_the_prompt_then_each_observation() -> None:
    policy = Listener([AssistantTurn(choose(20, 60)), AssistantTurn(answer("B"), reasoning="so")])
    trajectory = await episode().run(policy)
    assert [[message.role for message in messages] for messages in policy.heard] == [["system", "user"], ["user"]]
    shown = [[image.record for image in content_images(messages[-1].content)] for messages in policy.heard]
    assert shown == [trajectory.initial_frames, trajectory.turns[0].calls[0].frames]
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWER, "B")
    assert [turn.reasoning for turn in trajectory.turns] == [None, "so"]


async def test_the_name_of_an_unknown_tool_is_not_repeated_at_length() -> None:
    """What a policy writes comes back in an observation, which counts against the rollout's budget."""
    policy = Listener([AssistantTurn(think(tool_call("x" * 3000)))])
    trajectory = await Episode(get_method("longvt"), Sample(QUESTION, "B", video(), "mc")).run(policy)
    error = str(trajectory.turns[0].calls[0].error)
    assert error.startswith("unknown_tool: no tool is called 'xxx") and len(error) < 150
    assert len(trajectory.turns[0].observation or "") < 300


async def test_a_cut_turn_ends_the_rollout() -> None:
    trajectory = await episode().run(Listener([AssistantTurn(choose(20, 60), truncated=True)]))
    assert trajectory.stop_reason is StopReason.RESPONSE_BUDGET and trajectory.turns[0].truncated


async def test_a_script_that_is_used_up() -> None:
    trajectory = await episode().run(ScriptedPolicy([choose(20, 60)]))
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.SCRIPT_EXHAUSTED, [])
    assert trajectory.turns[0].observation is not None


async def test_a_policy_that_cannot_go_on_aborts_the_rollout() -> None:
    class Broken:
        async def turn(self, messages: Sequence[Message]) -> AssistantTurn:
            raise PolicyError("no endpoint")

    trajectory = await episode().run(Broken())
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.ABORTED, "no endpoint")
    assert trajectory.flags == ["aborted"]


class Generous:
    """A budget that everything fits, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def refuses_prompt(self, messages: Sequence[Message]) -> None:
        self.asked.append(content_text(messages[-1].content))

    def refuses_observation(self, content: Content) -> None:
        self.asked.append(content_text(content))


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the method's renderings, in order."""
    calls: list[str] = []
    for name in ("prompt", "observe"):
        real = getattr(LongVT, name)

        def counting(self: LongVT, *args: Any, name: str = name, real: Any = real) -> Any:
            calls.append(name)
            return real(self, *args)

        monkeypatch.setattr(LongVT, name, counting)
    return calls


CROP = (
    '<think>t</think><tool_call>{"name": "crop_video", "arguments": {"start_time": 1.03, "end_time": 4.99}}</tool_call>'
)


def uneven_episode(tmp_path: Path, budget: BudgetCheck | None) -> Episode:
    times_seconds = [i / 30 for i in range(30)] + [1 + i / 2 for i in range(10)]
    path = write_video(tmp_path / "variable.mp4", times_seconds=times_seconds)
    return Episode(get_method("longvt", initial_frames=4), Sample(QUESTION, "B", str(path), "mc"), budget=budget)


@pytest.mark.parametrize("has_budget", [False, True])
async def test_each_message_is_rendered_once(tmp_path: Path, rendered: list[str], has_budget: bool) -> None:
    """The budget is asked about the very text that is shown, before anything is decoded, whatever the frame rate."""
    budget = Generous()
    policy = Listener([AssistantTurn(CROP), AssistantTurn("<answer>B</answer>")])
    trajectory = await uneven_episode(tmp_path, budget if has_budget else None).run(policy)
    assert trajectory.turns[0].calls[0].ok
    assert rendered == ["prompt", "observe"]
    shown = [content_text(messages[-1].content) for messages in policy.heard]
    assert budget.asked == (shown if has_budget else [])
    for messages in policy.heard:
        assert all(image.pixels_HWC is not None for image in content_images(messages[-1].content))


async def test_labels_tell_the_frame_that_stands_in_for_a_damaged_one(
    tmp_path: Path, rendered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned_frames = videos_module.planned_frames

    async def of_damaged_file(*args: Any) -> list[FrameRecord]:
        return [replace(record, timestamp_seconds=99.0) for record in await planned_frames(*args)]

    monkeypatch.setattr(videos_module, "planned_frames", of_damaged_file)
    budget = Generous()
    policy = Listener([AssistantTurn(CROP), AssistantTurn("<answer>B</answer>")])
    trajectory = await uneven_episode(tmp_path, budget).run(policy)
    assert rendered == ["prompt", "prompt", "observe", "observe"]
    first, second = ([image.record for image in content_images(messages[-1].content)] for messages in policy.heard)
    assert (first, second) == (trajectory.initial_frames, trajectory.turns[0].calls[0].frames)
    texts = [content_text(messages[-1].content) for messages in policy.heard]
    assert budget.asked[1::2] == texts and "99.0s" in budget.asked[0]
    assert all(f"{record.timestamp_seconds:.1f}s <image>" in texts[1] for record in second)
    assert not any("99.0s" in text for text in texts)


async def test_an_answer_to_no_call_that_does_not_fit_ends_the_rollout() -> None:
    """FrameMind goes on after a summary alone; there is no call whose refusal could take the message's place."""

    class Full(Generous):
        def refuses_observation(self, content: Content) -> StopReason | None:
            return StopReason.RESPONSE_BUDGET

    sample = Sample(QUESTION, "B", video(), "mc")
    policy = Listener(
        [AssistantTurn("<think>so</think><turn_sum>seen</turn_sum>"), AssistantTurn("<answer>B</answer>")]
    )
    trajectory = await Episode(get_method("framemind"), sample, budget=Full()).run(policy)
    assert trajectory.stop_reason is StopReason.RESPONSE_BUDGET
    assert len(policy.heard) == 1 and trajectory.turns[0].observation is None
