"""Decoded frames, with the nearest sound one in the place of each that is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import av

from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.video.backends import FrameDecoder
from verl_video_tools.video.readers import FrameReader
from verl_video_tools.video.source import Deadline


def frames_or_stand_ins(
    path: Path, decoder: FrameDecoder, reader: FrameReader, indices: Sequence[int], deadline: Deadline
) -> Iterator[tuple[int, int, av.VideoFrame]]:
    """(asked index, shown index, frame) for ascending distinct indices.

    Args:
        path: for the message.
        reader: finds and decodes what stands in.

    Raises:
        UnreadableVideoError: no frame near a damaged one can be decoded.
    """
    missing = set(indices)
    for index, frame in decoder.decode(indices, deadline):
        missing.discard(index)
        yield index, index, frame
    stand_ins: dict[int, list[int]] = {}
    for index in sorted(missing):
        near = reader.decodable_near(index, range(reader.num_frames), deadline)
        if near is None:
            break
        stand_ins.setdefault(near, []).append(index)
    for shown, frame in reader.decode(sorted(stand_ins), deadline):
        for asked in stand_ins[shown]:
            missing.discard(asked)
            yield asked, shown, frame
    if missing:
        raise UnreadableVideoError(f"{path}: neither frame {min(missing)} nor any near it can be decoded")
