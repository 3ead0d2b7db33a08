"""Which labels beside frames are false."""

from __future__ import annotations

import pytest

from verl_video_tools.checks.labels import false_label
from verl_video_tools.checks.requests import request_fault
from verl_video_tools.core.types import FrameRecord, FrameRequest, ImagePart, VideoInfo

FRAMES = [FrameRecord(30, 6.0, 56, 56), FrameRecord(61, 12.2, 56, 56)]
INFO = VideoInfo(20.0, 100, 5.0, 56, 56)


def content(form: str) -> tuple[str | ImagePart, ...]:
    """The frames, each on a line after a label of this form."""
    parts: list[str | ImagePart] = ["Watch 3 frames of 20.00 s.\n"]
    for place, frame in enumerate(FRAMES):
        seconds = frame.timestamp_seconds
        clock = f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
        parts += [form.format(t=seconds, late=seconds + 0.5, n=frame.index, i=place, place=place + 1, clock=clock)]
        parts += [ImagePart(frame), "\n"]
    return tuple(parts)


TRUE = (
    *("", "frame: ", "{t:.2f} s: ", "{t:.1f}s", "{t:.0f} s", "Frame {n}: ", "Frame {n} at {t:.2f} s: ", "{clock} "),
    *("Image {i}: ", "Picture {place} of 2: ", "Frame {n} ({clock}): ", "at {t:.3f} seconds (5.00 fps): "),
)


@pytest.mark.parametrize("form", TRUE)
def test_true_labels_pass(form: str) -> None:
    assert false_label(content(form)) is None


@pytest.mark.parametrize("form", ["{late:.1f} s: ", "Frame 5{n}: ", "Frame {n} at {late:.2f} s: ", "1:{n} ", "99.0: "])
def test_false_labels_are_found(form: str) -> None:
    told = false_label(content(form))
    assert told is not None and "6 s" in told


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        ({"indices": (0, 50, 99)}, None),
        ({"seconds": (0.0, 7.5, 20.0)}, None),
        ({"indices": ()}, None),
        ({"indices": (4, 4)}, None),
        ({"indices": (0, 100)}, "the index 100 is not within 0 to 99"),
        ({"seconds": (-0.1,)}, "the time -0.1 is not within 0 to 20"),
        ({"seconds": (3.0, 2.0)}, "frames are not in order of time"),
    ],
)
def test_frames_that_cannot_be_shown_in_order(frames: dict[str, tuple[float, ...]], fault: str | None) -> None:
    assert request_fault(FrameRequest(width=56, height=56, **frames), INFO) == fault  # type: ignore[arg-type]


def test_frames_have_a_size() -> None:
    assert request_fault(FrameRequest(width=0, height=56, indices=(1,)), INFO) == "a size of 0x56 pixels"
    assert request_fault(None, INFO) is None
