"""What a rollout has shown and said so far, as a tool may read it: nothing of it can be changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from verl_video_tools.core.frames import Tile
from verl_video_tools.core.messages import Content
from verl_video_tools.core.regions import PixelBox
from verl_video_tools.core.trajectory import CallRecord


@dataclass(frozen=True, slots=True)
class ShownFrame:
    """One image that the model was shown.

    Attributes:
        position: its place among all images of the rollout, from 0; a call may name it by that.
        index: number of the frame, in presentation order of its video.
        timestamp_seconds: of the frame, as its decoder reported it.
        label: the words that stood before the image on its line, as the model read them; empty where there were none.
        turn: 0 for the frames shown with the question, n for those that answered the n-th assistant turn.
        region: the part of the displayed frame that was shown; None where all of it was.
        tiles: the frames of a grid; index and time are then the first one's. Empty for a single frame.
        video: which of several videos of the row it is from, from 0.
    """

    position: int
    index: int
    timestamp_seconds: float
    label: str
    turn: int
    region: PixelBox | None = None
    tiles: tuple[Tile, ...] = ()
    video: int = 0


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call as it was carried out or refused; the values are those of its `CallRecord`, read-only.

    Attributes:
        arguments: lists in it are tuples.
        error: ``"<code>: <message>"``, None where it was carried out.
        result: facts that the tool has recorded; lists in it are tuples.
        text: what the tool answered in words, if it did.
        num_frames: images that it showed.
    """

    name: str
    arguments: Mapping[str, Any]
    ok: bool
    error: str | None
    result: Mapping[str, Any]
    text: str | None
    num_frames: int

    @classmethod
    def of(cls, record: CallRecord) -> PastCall:
        error = None if record.error is None else str(record.error)
        arguments, result = _frozen(record.arguments), _frozen(record.result)
        return cls(record.name, arguments, record.ok, error, result, record.text, len(record.frames))


@dataclass(frozen=True, slots=True)
class PastTurn:
    """One assistant turn: its text, and what became of its calls; none yet for the turn that is under way."""

    text: str
    calls: tuple[PastCall, ...] = ()


def labelled_images(content: Content) -> Iterator[tuple[str, Any]]:
    """Each image of a content after its label: the words before it on its line, back to the image before it."""
    before = ""
    for part in content:
        if isinstance(part, str):
            before = (before + part).rpartition("\n")[2]
        else:
            yield before.strip(), part
            before = ""


def _frozen(value: Any) -> Any:
    """JSON-able data of which no part can be changed."""
    if isinstance(value, Mapping):
        return MappingProxyType({name: _frozen(member) for name, member in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(map(_frozen, value))
    return value
