"""Random access gives what one pass gives, on every kind of file: the one test that has them all."""

from __future__ import annotations

import os
from pathlib import Path

import av
import numpy as np
import pytest

from tests.videos.compare import compare
from tests.videos.files import read_number, write_video
from tests.videos.kinds import WRITERS, X265
from tests.videos.rare_kinds import RARE_WRITERS
from tests.videos.reference import Reference
from verl_video_tools.video import Video


@pytest.mark.parametrize("name", [*WRITERS, *RARE_WRITERS])
def test_random_access_equals_one_pass(name: str, tmp_path: Path) -> None:
    reference = Reference({**WRITERS, **RARE_WRITERS}[name](tmp_path / name))
    times = reference.timestamps_seconds
    with Video(reference.path) as video:
        comparison = compare(video, reference)
        assert comparison.wrong is None
        assert comparison.asked > len(times)
        assert [video.index_at(time) for time in times] == list(range(len(times)))
        assert [video.index_at(float(np.nextafter(time, 0.0))) for time in times[1:]] == list(range(len(times) - 1))
        assert video.info.missing_bytes == 0
        duration_seconds = video.info.duration_seconds
        assert duration_seconds > times[-1]
        assert video.frames_at([0, duration_seconds]).indices.tolist() == [0, len(times) - 1]


def copy_from_second_key_frame(source: Path, target: Path) -> None:
    """Copy packets unchanged, so that the frame shown first has time 0."""
    with av.open(str(source)) as reader, av.open(str(target), "w") as writer:
        stream = writer.add_stream_from_template(reader.streams.video[0])
        packets = [packet for packet in reader.demux(video=0) if packet.size]
        (_, second, *_) = [number for number, packet in enumerate(packets) if packet.is_keyframe]
        first_pts = min(packet.pts for packet in packets[second:])
        for packet in packets[second:]:
            packet.pts -= first_pts
            packet.dts -= first_pts
            packet.stream = stream
            writer.mux(packet)


@pytest.mark.parametrize("suffix", ["mkv", "mp4", "ts"])
def test_pictures_shown_before_the_first_key_frame(suffix: str, tmp_path: Path) -> None:
    """Those of HEVC that refer to nothing before it (RADL) are shown where the file begins with that key frame, too."""
    parameters = f"radl=2:bframes=4:open-gop=0:keyint=24:min-keyint=24:scenecut=0:{X265}"
    path = tmp_path / f"cut.{suffix}"
    whole = path.with_name("whole.ts" if suffix == "ts" else "whole.mp4")
    write_video(whole, num_frames=120, codec="libx265", codec_options={"x265-params": parameters})
    if suffix == "ts":
        path.write_bytes(whole.read_bytes()[30 * 188 :])  # the first key frame is gone
    else:
        copy_from_second_key_frame(whole, path)
    reference = Reference(path)
    assert reference.numbers == list(range(22, 120)), "the first two are no such pictures, so this tests nothing"
    with Video(path) as video:
        comparison = compare(video, reference)
    assert comparison.wrong is None and comparison.is_random_access


@pytest.mark.parametrize(("name", "codec"), [("same.mkv", "libx264"), ("same.webm", "libvpx")])
def test_frames_of_one_millisecond_leave_all_other_times_as_they_are(name: str, codec: str, tmp_path: Path) -> None:
    """A clock of milliseconds gives frames 9 and 10 one time, as screens that are recorded at a varying rate do."""
    times = [0.1 * number for number in range(10)] + [0.9003] + [10 + 0.5 * number for number in range(20)]
    path = write_video(tmp_path / name, codec=codec, times_seconds=times, b_frames=0)
    with av.open(str(path)) as container:
        told = [round(1000 * frame.time) for frame in container.decode(video=0)]
    assert told[9] == told[10] == 900, "this tests nothing"
    with Video(path) as video:
        seen = [round(1000 * seconds) for seconds in video.timestamps_seconds()]
        numbers = [read_number(picture) for picture in video.frames_at([0.9, 0.901, 10.0, 19.5]).frames_THWC]
        assert video.info.duration_seconds > 19.5
    assert seen == [*told[:10], 901, *told[11:]]
    assert numbers == [9, 10, 11, 30]


def test_wrong_frames_are_noticed(tmp_path: Path) -> None:
    """Against another file's reference, so that the tests above can fail."""
    reference = Reference(WRITERS["no_b_frames.mp4"](tmp_path / "reference.mp4"))
    with Video(WRITERS["one_group.mp4"](tmp_path / "pictures.mp4")) as video:
        assert compare(video, reference).num_wrong > 60
    with Video(WRITERS["ntsc.mp4"](tmp_path / "times.mp4")) as video:
        assert "time" in str(compare(video, reference).wrong)
    with Video(WRITERS["h264.mp4"](tmp_path / "longer.mp4")) as video:
        assert compare(video, reference).wrong == "100 frames instead of 60"


def test_no_kind_hides_another_of_its_name() -> None:
    assert not WRITERS.keys() & RARE_WRITERS.keys()


def test_an_encoder_leaves_the_process_its_place_among_others(tmp_path: Path) -> None:
    before = os.sched_getscheduler(0)
    write_video(tmp_path / "av1.mp4", num_frames=3, codec="libsvtav1", codec_options={"preset": "12"})
    assert os.sched_getscheduler(0) == before
