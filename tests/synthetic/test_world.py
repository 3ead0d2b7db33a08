"""The synthetic world: reproducible, and its labels say what the decoded pixels show."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import av
import numpy as np
import pytest

from examples.tiny_models.frame_pool import decode_all
from verl_video_tools.synthetic.world import (
    COLOURS,
    LABELS,
    Event,
    VideoSpec,
    default_initial_frames,
    frame_pixels,
    is_hidden,
    label_at,
    random_spec,
    render,
)

CROWDED = VideoSpec(7, 5, 16 * 12, tuple(Event(12 * n + 2, 12 * n + 9, label) for n, label in enumerate(LABELS)))


def seen_colour(frame_HWC: np.ndarray) -> str | None:
    """Which colour covers a shape's area in a frame, found without the drawing code."""
    pixels = frame_HWC.reshape(-1, 3).astype(int)
    vivid = pixels[np.ptp(pixels, axis=1) > 90]
    if len(vivid) < 300:
        return None
    mean = vivid.mean(0)
    return min(COLOURS, key=lambda name: float(np.abs(mean - COLOURS[name]).sum()))


def test_same_seed_gives_same_spec_and_pixels_and_another_seed_does_not() -> None:
    assert random_spec(5) == random_spec(5)
    assert random_spec(5) != random_spec(6)
    assert np.array_equal(frame_pixels(CROWDED, 3), frame_pixels(CROWDED, 3))
    other = VideoSpec(8, 5, CROWDED.num_frames, CROWDED.events)
    assert not np.array_equal(frame_pixels(CROWDED, 3), frame_pixels(other, 3))


def test_rendering_again_gives_the_same_file(tmp_path: Path) -> None:
    short = VideoSpec(7, 5, 60, CROWDED.events[:4])
    files = []
    for number in range(8):  # an encoder that depends on stray memory differs only now and then
        render(short, tmp_path / f"{number}.mp4")
        files.append((tmp_path / f"{number}.mp4").read_bytes())
    assert len(set(files)) == 1


def test_file_is_h264_with_b_frames_at_constant_rate_without_audio(tmp_path: Path) -> None:
    render(CROWDED, tmp_path / "video.mp4")
    with av.open(str(tmp_path / "video.mp4")) as container:
        assert [stream.type for stream in container.streams] == ["video"]
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert (stream.width, stream.height, stream.codec_context.pix_fmt) == (56, 56, "yuv420p")
        frames = list(container.decode(stream))
    assert len(frames) == CROWDED.num_frames
    assert {frame.pict_type for frame in frames} >= {av.video.frame.PictureType.B, av.video.frame.PictureType.P}
    seconds = [float(frame.pts * frame.time_base) for frame in frames]
    assert np.allclose(np.diff(seconds), 1 / CROWDED.fps)
    assert seconds[0] == 0


def test_labels_agree_with_the_decoded_pixels_of_every_frame(tmp_path: Path) -> None:
    render(CROWDED, tmp_path / "video.mp4")
    for index, frame in enumerate(decode_all(tmp_path / "video.mp4")):
        label = label_at(CROWDED, index)
        assert seen_colour(frame) == (label.split()[0] if label else None), f"frame {index} shows {label}"


def test_each_shape_has_its_own_area_and_extent() -> None:
    """A shape mixed up with another in the drawing code would fail here: share of its bounding box that it fills."""
    expected = {"square": 1.0, "circle": np.pi / 4, "triangle": 0.5, "cross": 0.49}
    for index in range(2, CROWDED.num_frames, 12):
        label = label_at(CROWDED, index)
        assert label is not None
        vivid = np.ptp(frame_pixels(CROWDED, index).astype(int), axis=2) > 90
        rows, columns = np.flatnonzero(vivid.any(1)), np.flatnonzero(vivid.any(0))
        box = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
        assert 30**2 < box < 50**2
        assert vivid.sum() / box == pytest.approx(expected[label.split()[1]], abs=0.09), label


def test_random_specs_keep_their_promises() -> None:
    visible = 0
    for seed in range(150):
        spec = random_spec(seed)
        assert 200 <= spec.num_frames <= 600
        assert 2 <= len(spec.events) <= 5
        assert all(15 <= event.end_frame - event.start_frame + 1 <= 25 for event in spec.events)
        hidden = [event for event in spec.events if is_hidden(event, spec.num_frames)]
        assert hidden
        for event in hidden:
            assert all(
                label_at(spec, frame) != event.label or not _inside(event, frame) for frame in _initial_frames(spec)
            )
        visible += len(hidden) < len(spec.events)
    assert 90 <= visible <= 135


def _initial_frames(spec: VideoSpec) -> list[int]:
    return default_initial_frames(spec.num_frames)


def _inside(event: Event, frame: int) -> bool:
    return event.start_frame <= frame <= event.end_frame


def test_initial_frames_are_a_truncated_linspace_from_first_to_last_frame() -> None:
    assert default_initial_frames(454) == [0, 64, 129, 194, 258, 323, 388, 453]


def test_spec_survives_json() -> None:
    assert VideoSpec.from_dict(json.loads(json.dumps(asdict(CROWDED)))) == CROWDED


@pytest.mark.parametrize(
    "events",
    [
        (Event(5, 9, "red circle"), Event(9, 12, "blue cross")),
        (Event(20, 25, "red circle"), Event(5, 9, "blue cross")),
        (Event(90, 100, "red circle"),),
        (Event(-1, 3, "red circle"),),
        (Event(3, 5, "pink circle"),),
    ],
)
def test_impossible_events_are_refused(events: tuple[Event, ...]) -> None:
    with pytest.raises(ValueError, match=r"overlaps|unknown label"):
        VideoSpec(0, 5, 100, events)


@pytest.mark.parametrize("index", [-1, CROWDED.num_frames])
def test_frames_outside_the_video_are_refused(index: int) -> None:
    with pytest.raises(IndexError, match=str(index)):
        label_at(CROWDED, index)
    with pytest.raises(IndexError, match=str(index)):
        frame_pixels(CROWDED, index)
