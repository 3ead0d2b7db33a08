"""Frames that are predicted from a damaged one look wrong, too, and the decoder hands them out as sound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tests.videos.files import read_number, write_video
from tests.videos.kinds import X265, scramble
from verl_video_tools.core.sample import clip_path
from verl_video_tools.video import Video

NUM_FRAMES, GROUP_FRAMES = 90, 30
SAME = 2.0
"""Mean difference of a frame that another damaged packet leaves as it was; what is patched up differs by more."""

Packets = list[av.Packet]

Damage = Callable[[bytearray, av.Packet, int], None]
"""Damages a packet in the bytes of its file; the number chooses where."""


def written(folder: Path, name: str, **options: Any) -> Path:
    path = folder / name
    size = {"width": 384, "height": 256}
    return write_video(path, num_frames=NUM_FRAMES, gop_frames=GROUP_FRAMES, **size, **options)


def packets_of(path: Path) -> Packets:
    with av.open(str(path)) as container:
        return [packet for packet in container.demux(video=0) if packet.size]


def _start_seconds(video: Video) -> float:
    """Time of the first frame on the file's own clock."""
    return float(video._first_pts * video._time_base)


def flagged(damaged: Path, whole: Path) -> list[int]:
    """Frames, by their number in the whole file, that others stand in for; each other one is checked to be right.

    Asked for alone, a frame has to be what it is among all.
    """
    with Video(whole) as video:
        sound = video.frames_at_indices(range(NUM_FRAMES)).frames_THWC.astype(np.int16)
        start_seconds = _start_seconds(video)
    with Video(damaged) as video:
        count = video.info.num_frames
        # Where the bytes that hold its time are lost, a frame is not in the file any more.
        numbers = (
            np.rint((video.timestamps_seconds() + _start_seconds(video) - start_seconds) * 30).astype(int).tolist()
        )
        batch = video.frames_at_indices(range(count))
        for index in range(0, count, 7):
            alone = video.frames_at_indices([index])
            assert (alone.indices[0], alone.corrupt[0]) == (batch.indices[index], batch.corrupt[index])
            np.testing.assert_array_equal(alone.frames_THWC[0], batch.frames_THWC[index])
        for index in range(count):
            shown = numbers[batch.indices[index]]
            assert batch.corrupt[index] == (shown != numbers[index])
            assert np.abs(batch.frames_THWC[index] - sound[shown]).mean() < SAME, f"frame {index}"
    return [number for number, corrupt in zip(numbers, batch.corrupt, strict=True) if corrupt]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("spread"), "whole.ts")


@pytest.mark.parametrize("where", [0.40, 0.50, 0.56, "key frame"])
def test_a_lost_transport_packet(where: float | str, stream: Path, tmp_path: Path) -> None:
    data = stream.read_bytes()
    if where == "key frame":  # the demuxer flags the packet before it, which is another group's
        key = packets_of(stream)[GROUP_FRAMES]
        assert key.is_keyframe and key.pos is not None
        lost = key.pos + 5 * 188
    else:
        lost = int(len(data) * float(where)) // 188 * 188
    path = tmp_path / "lossy.ts"
    path.write_bytes(data[:lost] + data[lost + 188 :])
    frames = flagged(path, stream)
    assert 0 < len(frames) <= GROUP_FRAMES + 3
    if where == "key frame":
        assert set(range(GROUP_FRAMES, 2 * GROUP_FRAMES)) <= set(frames)


def noise(data: bytearray, packet: av.Packet, seed: int) -> None:
    """Four damaged bytes in the picture."""
    assert packet.pos is not None
    for place in np.random.default_rng(seed).integers(packet.pos + packet.size // 4, packet.pos + packet.size - 4, 4):
        data[int(place)] ^= 0xFF


def no_length(data: bytearray, packet: av.Packet, seed: int) -> None:
    """Damage to the length that comes before the picture: the decoder finds none."""
    assert packet.pos is not None
    data[packet.pos : packet.pos + 4] = b"\xff" * 4


def no_type(data: bytearray, packet: av.Packet, seed: int) -> None:
    """Damage after the picture's type, in HEVC, where the slice begins."""
    assert packet.pos is not None
    data[packet.pos + 6 : packet.pos + 16] = bytes(10)


def unflagged_pts(path: Path) -> set[int | None]:
    """Times of the frames that FFmpeg decodes and takes for sound."""
    pts: set[int | None] = set()
    with av.open(str(path)) as container:
        for packet in container.demux(video=0):
            with suppress(av.FFmpegError):
                pts.update(frame.pts for frame in packet.decode() if not frame.is_corrupt)
    return pts


def damaged(whole: Path, packet: av.Packet, damage: Damage) -> Path:
    """A copy with damage in a packet that FFmpeg notices; flipped bytes may also decode to a wrong picture."""
    path = whole.with_name(f"damaged_{whole.name}")
    for seed in range(50):
        damage(data := bytearray(whole.read_bytes()), packet, seed)
        path.write_bytes(data)
        if packet.pts not in unflagged_pts(path):
            return path
    raise AssertionError("FFmpeg notices none of the damages")


def number_of(packet: av.Packet) -> int:
    assert packet.pts is not None and packet.time_base is not None
    return round(packet.pts * packet.time_base * 30)


# B-frames come in pairs that no frame refers to, each pair after the P-frame that is shown next.
PAIRS = {
    "libx264": {"x264-params": "bframes=2:b-adapt=0:b-pyramid=none"},
    "libx265": {"x265-params": f"bframes=2:b-adapt=0:b-pyramid=0:open-gop=0:{X265}"},
}


def p_frame(packets: Packets) -> int:
    """Place of a P-frame in the second group."""
    return next(place for place in range(40, 50) if number_of(packets[place + 1]) < number_of(packets[place]))


@pytest.mark.parametrize("damage", [noise, no_length])
def test_a_damaged_picture_that_others_are_predicted_from(damage: Damage, tmp_path: Path) -> None:
    whole = written(tmp_path, "whole.mp4", codec_options=PAIRS["libx264"])
    packets = packets_of(whole)
    place = p_frame(packets)
    frames = flagged(damaged(whole, packets[place], damage), whole)
    assert frames == sorted(number_of(packet) for packet in packets[place : 2 * GROUP_FRAMES])


@pytest.mark.parametrize("codec", sorted(PAIRS))
def test_a_damaged_picture_that_no_other_is_predicted_from(codec: str, tmp_path: Path) -> None:
    whole = written(tmp_path, "whole.mp4", codec=codec, codec_options=PAIRS[codec])
    packet = packets_of(whole)[p_frame(packets_of(whole)) + 1]
    assert flagged(damaged(whole, packet, noise if codec == "libx264" else no_type), whole) == [number_of(packet)]


def test_damage_reaches_frames_shown_before_the_next_key_frame(tmp_path: Path) -> None:
    """An open group of pictures; after its key frame the damage is over."""
    options = {"x264-params": "open-gop=1:bframes=2:b-adapt=0:b-pyramid=none"}
    whole = written(tmp_path, "whole.mp4", codec_options=options)
    packets = packets_of(whole)
    key = next(place for place in range(40, NUM_FRAMES) if packets[place].is_keyframe)
    assert number_of(packets[key + 1]) < number_of(packets[key]), "the group is closed, so this tests nothing"
    frames = flagged(damaged(whole, packets[key - 3], no_length), whole)
    assert frames == list(range(min(number_of(packet) for packet in packets[key - 3 : key]), number_of(packets[key])))


@pytest.mark.parametrize("seconds", [(4.033, 10.0), (0.0, 7.0)])
def test_a_clip_that_begins_or_ends_in_damage(seconds: tuple[float, float], tmp_path: Path) -> None:
    whole = write_video(
        tmp_path / "whole.mp4", num_frames=300, gop_frames=30, container_options={"movflags": "faststart"}
    )
    first, last = (packets_of(whole)[place] for place in (120, 209))
    assert first.is_keyframe and first.pos is not None and last.pos is not None
    size = whole.stat().st_size
    path = scramble(whole, tmp_path / "damaged.mp4", first.pos / size, (last.pos + last.size) / size)
    offset, after = (round(time * 30) for time in seconds)
    with Video(clip_path(path, *seconds)) as clip:
        assert clip.info.num_frames == after - offset
        batch = clip.frames_at_indices(range(after - offset))
    is_damaged = [120 <= index < 210 for index in range(offset, after)]
    assert batch.corrupt.tolist() == is_damaged
    nearest = 210 if offset else 119
    shown = [nearest if lost else index for index, lost in zip(range(offset, after), is_damaged, strict=True)]
    assert (batch.indices + offset).tolist() == shown
    assert [read_number(frame) for frame in batch.frames_THWC] == shown
