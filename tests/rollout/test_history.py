"""What tools may read of their rollout: every image that the model has had before the call, and no later."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from verl_video_tools.rollout.observation import History, labelled_images
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
    assert [frame.index for frame in first.shown] == trajectory.initial_frame_indices()
    assert len(of_call) == 2 and second.shown[:4] == first.shown
    assert [frame.turn for frame in second.shown] == [0] * 4 + [2] * 2
    assert [frame.position for frame in second.shown] == list(range(6))
    records = [*trajectory.initial_frames, *of_call]
    assert [(frame.index, frame.timestamp_seconds) for frame in second.shown] == [
        (record.index, record.timestamp_seconds) for record in records
    ]
    # The labels stand in what the policy was sent, each just before its image.
    sent = [label for content in policy.contents for label, _ in labelled_images(content)]
    assert [frame.label for frame in second.shown] == sent == [f"{record.timestamp_seconds:.1f}s" for record in records]


async def test_a_record_replayed_gives_every_tool_the_same_context(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = spied(monkeypatch)
    row = sample(make_video())
    trajectory = await Episode(Talking(initial_frames=4), row).run(ScriptedPolicy(TURNS))
    recorded = Trajectory.from_dict(trajectory.to_dict())
    await Episode(Talking(initial_frames=4), row).run(ScriptedPolicy([turn.text for turn in recorded.turns]))
    assert [context.shown for context in contexts[:2]] == [context.shown for context in contexts[2:]]


def test_a_turn_adds_what_it_shows_and_no_more() -> None:
    """Frames of earlier turns are the same objects: none is read or made again."""

    def observation(num_images: int) -> Content:
        return tuple(ImagePart(FrameRecord(index, 0.0, 4, 4)) for index in range(num_images))

    history = History()
    history.show([observation(3)], turn=0)
    shown = history.shown
    for number in (1, 2, 3):
        history.show([observation(2)], turn=number)
        assert all(old is new for old, new in zip(shown, history.shown, strict=False))
        shown = history.shown
        assert [frame.turn for frame in shown[-2:]] == [number] * 2
    assert [frame.position for frame in shown] == list(range(9))


words = st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs", "Cc")), max_size=5)


@given(st.lists(st.tuples(st.lists(words, min_size=1, max_size=3), st.booleans()), max_size=8))
def test_a_label_is_the_words_before_the_image_on_its_line(pieces: list[tuple[list[str], bool]]) -> None:
    """Against the whole text with marks, cut at the images and read backwards to the line's start."""
    content: list[str | ImagePart] = []
    expected, written = [], ""
    for lines, has_image in pieces:
        text = "\n".join(lines)
        content.append(text)
        written += text
        if has_image:
            content.append(ImagePart(FrameRecord(len(expected), 0.0, 4, 4)))
            expected.append(written.split("\n")[-1].strip())
            written = ""
    found = list(labelled_images(tuple(content)))
    assert [label for label, _ in found] == expected
    assert [image.record.index for _, image in found] == list(range(len(expected)))


@pytest.mark.parametrize("name", METHOD_NAMES)
async def test_every_method_has_labels_or_none(name: str, make_video: MakeVideo) -> None:
    """All initial frames of a method are in the history, each with the label of its own time or number."""
    episode = Episode(get_method(name), sample(make_video(), ()))
    messages = await episode.start()
    assert messages is not None
    records = [image.record for message in messages for image in content_images(message.content)]
    shown = episode.history.shown
    assert [(frame.index, frame.timestamp_seconds) for frame in shown] == [
        (record.index, record.timestamp_seconds) for record in records
    ]
    assert all(frame.label for frame in shown) and len({frame.label for frame in shown}) == len(shown)
