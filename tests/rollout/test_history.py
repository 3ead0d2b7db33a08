"""What tools may read of their rollout: every image that the model has had before the call, and no later."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.talking_method import ANSWER, Spy, Talking, call, sample
from tests.videos.files import MakeVideo
from verl_video_tools.core.types import (
    Content,
    FrameRecord,
    ImagePart,
    Message,
    Tool,
    ToolContext,
    Trajectory,
    content_images,
)
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.observation import shown_frames
from verl_video_tools.rollout.policy import AssistantTurn, ScriptedPolicy

TURNS = [call("spy", n=1), call("crop_video", start_time=10, end_time=12), call("spy", n=2), ANSWER]


class Watching:
    """A script that keeps the messages that it is given."""

    def __init__(self, turns: list[str]) -> None:
        self._turns = iter(turns)
        self.contents: list[Content] = []

    async def turn(self, messages: list[Message]) -> AssistantTurn | None:
        self.contents += [message.content for message in messages]
        return AssistantTurn(next(self._turns))


def spied(monkeypatch: pytest.MonkeyPatch) -> list[ToolContext]:
    contexts: list[ToolContext] = []
    tools: Mapping[str, Tool] = {"spy": Spy(contexts)}
    monkeypatch.setattr(Talking, "more", tools)
    return contexts


async def test_a_tool_reads_what_the_model_was_shown(make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = spied(monkeypatch)
    policy = Watching(TURNS)
    trajectory = await Episode(Talking(initial_frames=4), sample(make_video())).run(policy)
    first, second = contexts
    of_call = trajectory.turns[1].calls[0].frames
    assert [frame.index for frame in first.previous_frames] == trajectory.initial_frame_indices()
    assert len(of_call) == 2 and second.previous_frames[:4] == first.previous_frames
    assert [frame.turn for frame in second.previous_frames] == [0] * 4 + [2] * 2
    records = [*trajectory.initial_frames, *of_call]
    assert [(frame.index, frame.timestamp_seconds) for frame in second.previous_frames] == [
        (record.index, record.timestamp_seconds) for record in records
    ]


async def test_a_record_replayed_gives_every_tool_the_same_context(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = spied(monkeypatch)
    row = sample(make_video())
    trajectory = await Episode(Talking(initial_frames=4), row).run(ScriptedPolicy(TURNS))
    recorded = Trajectory.from_dict(trajectory.to_dict())
    await Episode(Talking(initial_frames=4), row).run(ScriptedPolicy([turn.text for turn in recorded.turns]))
    assert [context.previous_frames for context in contexts[:2]] == [
        context.previous_frames for context in contexts[2:]
    ]


def test_images_of_messages_in_their_order() -> None:
    contents = [tuple(ImagePart(FrameRecord(index, 0.0, 4, 4)) for index in indices) for indices in ((3, 1), (2,))]
    assert [(frame.index, frame.turn) for frame in shown_frames(contents, turn=2)] == [(3, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize("name", METHOD_NAMES)
async def test_tools_of_every_method_read_the_initial_frames(name: str, make_video: MakeVideo) -> None:
    """All initial frames of a method, in their order."""
    episode = Episode(get_method(name), sample(make_video(), ()))
    messages = await episode.start()
    assert messages is not None
    records = [image.record for message in messages for image in content_images(message.content)]
    shown = episode.previous_frames
    assert [(frame.index, frame.timestamp_seconds) for frame in shown] == [
        (record.index, record.timestamp_seconds) for record in records
    ]
