"""The cost that no reader of the same file can undercut: decode from the key frame to the last target, and scale.

    limit = packets from the key frame to the last frame asked for x FFmpeg's cost per packet with non-reference
            skipping + frames x cost of scaling

The first is measured by a bare PyAV loop, the second by our own scaling alone; both in the same run, on one thread.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from benchmarks.video.requests import HEIGHT, WIDTH, Request
from verl_video_tools.video.frame_converter import FrameConverter

PACKETS_PER_STRETCH = 600


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """CPU seconds, medians over the stretches measured."""

    packet_seconds: float
    scale_seconds: float


class PacketMap:
    """Where the frames of a file with constant frame rate lie: read once, all packets."""

    def __init__(self, path: Path) -> None:
        with av.open(str(path)) as container:
            packets = [
                (packet.pts, packet.is_keyframe) for packet in container.demux(video=0) if packet.pts is not None
            ]
        self._position_of = {pts: position for position, (pts, _) in enumerate(packets)}
        self._pts = sorted(self._position_of)
        self._keys = np.flatnonzero([is_key for _, is_key in packets])

    def num_packets(self, request: Request) -> int:
        """Packets from key frames to the last frame asked for after each, all groups of pictures together."""
        last_position: dict[int, int] = {}
        for index in request.indices:
            position = self._position_of[self._pts[index]]
            key = int(np.searchsorted(self._keys, position, side="right")) - 1
            last_position[key] = max(last_position.get(key, 0), position)
        return sum(last - int(self._keys[key]) + 1 for key, last in last_position.items())

    def limit_seconds(self, request: Request, costs: UnitCosts) -> float:
        """CPU seconds that a request cannot do without."""
        return self.num_packets(request) * costs.packet_seconds + len(request.indices) * costs.scale_seconds


def measure_unit_costs(path: Path, num_stretches: int) -> UnitCosts:
    """Decode stretches spread over a file, without non-reference frames, and scale their frames to 588 x 336."""
    maker = FrameConverter()
    packet_seconds, scale_seconds = [], []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        stream.codec_context.thread_type = "NONE"
        stream.codec_context.skip_frame = "NONREF"
        assert stream.duration is not None
        for number in range(num_stretches):
            container.seek(stream.duration * number // num_stretches, stream=stream)
            frames: list[av.VideoFrame] = []
            num_packets = 0
            start = time.process_time()
            for packet in container.demux(stream):
                if num_packets == PACKETS_PER_STRETCH:
                    break
                num_packets += 1
                frames = packet.decode() or frames
            packet_seconds.append((time.process_time() - start) / num_packets)
            start = time.process_time()
            for _ in range(10):
                for frame in frames:
                    maker.convert(frame, WIDTH, HEIGHT)
            scale_seconds.append((time.process_time() - start) / (10 * len(frames)))
    return UnitCosts(statistics.median(packet_seconds), statistics.median(scale_seconds))
