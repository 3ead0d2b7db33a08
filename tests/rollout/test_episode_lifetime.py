"""A finished rollout frees its frames at once: no circle keeps them until the garbage collector's next full run."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.turns import framethinker
from tests.videos.files import write_video
from verl_video_tools.core.types import Message, Sample, content_images
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import AssistantTurn


@pytest.fixture(autouse=True)
def _no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Watching:
    """A policy that looks once and answers, and keeps weak references to the pixels that it was shown."""

    def __init__(self) -> None:
        self.turns = [framethinker.choose(10, 40), framethinker.answer("A")]
        self.shown: list[weakref.ref[np.ndarray]] = []

    async def turn(self, messages: list[Message]) -> AssistantTurn | None:
        images = [image for message in messages for image in content_images(message.content)]
        self.shown += [weakref.ref(image.pixels_HWC) for image in images if image.pixels_HWC is not None]
        return AssistantTurn(self.turns.pop(0)) if self.turns else None


@pytest.mark.slow
async def test_an_episode_frees_itself_and_its_pixels(tmp_path: Path) -> None:
    sample = Sample("What?", "A", str(write_video(tmp_path / "video.mp4")), "mc")
    policy = Watching()
    episode = Episode(get_method("framethinker"), sample)
    trajectory = await episode.run(policy)
    (call,) = trajectory.turns[0].calls
    assert len(policy.shown) == len(trajectory.initial_frames) + len(call.frames) == 16
    alive = weakref.ref(episode)
    del episode
    assert alive() is None
    await asyncio.sleep(0)  # the event loop holds what the calls of the last turn gave until its own next turn
    assert [image for image in policy.shown if image() is not None] == []
