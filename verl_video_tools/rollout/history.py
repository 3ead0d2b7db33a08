"""`History`: gathers what tools may read of their rollout, message by message."""

from __future__ import annotations

from collections.abc import Sequence

from verl_video_tools.core.history import SaidCall, SaidTurn, ShownFrame, labelled_images
from verl_video_tools.core.types import Content, Turn


class History:
    """What one rollout has shown and said. A message is read once, when it is final; no pixels are kept.

    Images stay in it though a context policy drops them from later turns: they were shown.
    """

    def __init__(self) -> None:
        self.shown: tuple[ShownFrame, ...] = ()
        self.turns: tuple[SaidTurn, ...] = ()

    def show(self, contents: Sequence[Content]) -> None:
        """Messages that the model reads next: the prompt, or the observation that answers the last turn."""
        images = [(label, image.record) for content in contents for label, image in labelled_images(content)]
        self.shown += tuple(
            ShownFrame(
                *(position, frame.index, frame.timestamp_seconds, label, len(self.turns)),
                *(frame.region, frame.tiles, frame.video),
            )
            for position, (label, frame) in enumerate(images, start=len(self.shown))
        )

    def say(self, text: str) -> None:
        """The assistant's turn, whose calls are now planned."""
        self.turns += (SaidTurn(text),)

    def settle(self, turn: Turn) -> None:
        """The last turn's calls are answered: its records are final."""
        self.turns = (*self.turns[:-1], SaidTurn(turn.text, tuple(map(SaidCall.of, turn.calls))))
