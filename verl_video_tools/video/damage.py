"""Which decoded frames owe nothing to damage.

A decoder flags the one picture whose bytes it could not read, and patches it up; those that are predicted from it look
as wrong, and it hands them out as sound. Only a key frame ends that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import av


@dataclass(frozen=True, slots=True)
class _Sent:
    """A packet that the decoder was given.

    Attributes:
        position: its number in decode order.
        group: number of its group of pictures, see `SoundFrames.sent`.
        is_leading: shown before its group's key frame. So it may refer to the group before, and nothing else to it.
        is_unreferenced: no other picture refers to it.
        settled_pts: when a frame of this time or a later one is out, so are all of the packets sent until now, but
            those that never will be.
    """

    position: int
    group: int
    is_leading: bool
    is_unreferenced: bool
    settled_pts: int


class SoundFrames:
    """The sound frames among those of one run of decoding, each let out as soon as it is known to be one.

    A frame may be shown before the damaged picture that it is predicted from. So some are held back, no more than the
    decoder itself holds to put frames in order.
    """

    def __init__(self) -> None:
        self._sent: dict[int, _Sent] = {}
        self._held: deque[tuple[_Sent, av.VideoFrame]] = deque()
        self._first_damaged: dict[tuple[int, bool], int] = {}  # position by group and `is_leading`
        self._group = -1
        self._key_pts = self._latest_pts = 0

    def sent(self, pts: int, begins_group: bool, is_damaged: bool, is_unreferenced: bool) -> None:
        """A packet is about to be decoded.

        Args:
            begins_group: it is a key frame before which decoding can start.
            is_damaged: the demuxer says so, of this packet or one near it.
        """
        if begins_group or not self._sent:
            self._group, self._key_pts = self._group + 1, pts
        self._latest_pts = max(self._latest_pts, pts) if self._sent else pts
        is_leading = pts < self._key_pts
        self._sent[pts] = _Sent(len(self._sent), self._group, is_leading, is_unreferenced, self._latest_pts)
        if is_damaged:
            self._spread_from(self._sent[pts])

    def refused(self, pts: int) -> None:
        """The decoder could make nothing of a packet."""
        if not self._sent[pts].is_unreferenced:
            self._spread_from(self._sent[pts])

    def of(self, frames: Iterable[av.VideoFrame]) -> Iterator[av.VideoFrame]:
        """Frames that are known to be sound now that these came out of the decoder, in the order they did."""
        for frame in frames:
            sent = None if frame.pts is None else self._sent.get(frame.pts)
            if frame.pts is None or sent is None:
                continue
            if not frame.is_corrupt:
                self._held.append((sent, frame))
            elif not sent.is_unreferenced:
                self._spread_from(sent)
            while self._held and self._held[0][0].settled_pts <= frame.pts:
                held, sound = self._held.popleft()
                if self._is_sound(held):
                    yield sound

    def rest(self) -> Iterator[av.VideoFrame]:
        """Those still held when the decoder has no more."""
        yield from (frame for sent, frame in self._held if self._is_sound(sent))

    def _spread_from(self, sent: _Sent) -> None:
        place = sent.group, sent.is_leading
        self._first_damaged[place] = min(sent.position, self._first_damaged.get(place, sent.position))

    def _is_sound(self, sent: _Sent) -> bool:
        never = len(self._sent)
        # Leading frames are also "damaged" where decoding starts at their key frame; that must not spread to others.
        if sent.is_leading and (
            (sent.group - 1, False) in self._first_damaged
            or self._first_damaged.get((sent.group, True), never) <= sent.position
        ):
            return False
        return sent.position < self._first_damaged.get((sent.group, False), never)
