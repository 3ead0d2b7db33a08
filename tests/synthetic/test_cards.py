"""The spatial world's pictures: a small frame is the same whatever is on a card, before compression and after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest

from verl_video_tools.synthetic.spatial import (
    BLOCK_PIXELS,
    PLACES,
    SMALL_SIDE_PIXELS,
    WINDOW_PIXELS,
    card_at,
    dot,
    picture_at,
    place_of,
    render_cards,
    window_of,
)
from verl_video_tools.synthetic.world import COLOURS, LABELS, SPATIAL_SIDE_PIXELS, Event, VideoSpec, label_at
from verl_video_tools.video import Box, FrameRequest, Region, Video

CROWDED = VideoSpec(
    11, 2, 4 * 32 + 1, tuple(Event(4 * n + 1, 4 * n + 3, LABELS[n % 16]) for n in range(32)), world="spatial"
)
OTHER_THINGS = replace(
    CROWDED, events=tuple(replace(e, label=LABELS[(n * 7 + 3) % 16]) for n, e in enumerate(CROWDED.events))
)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same video twice, with other things on its cards."""
    folder = tmp_path_factory.mktemp("cards")
    for name, spec in (("one", CROWDED), ("other", OTHER_THINGS)):
        render_cards(spec, folder / f"{name}.mp4")
    return folder / "one.mp4", folder / "other.mp4"


def small_frames(path: Path) -> np.ndarray:
    request = FrameRequest(width=SMALL_SIDE_PIXELS, height=SMALL_SIDE_PIXELS, indices=tuple(range(CROWDED.num_frames)))
    return Video(path).frames(request).frames_THWC.astype(int)


@pytest.mark.slow
def test_a_dots_mean_is_the_same_grey_for_all_things_to_the_last_bit() -> None:
    for number in range(20):
        dots = np.stack([dot(number, number, label) for label in LABELS]).astype(int)
        assert (dots.sum((1, 2)) == 120 * BLOCK_PIXELS**2).all()
        assert (dots[:, [0, 1, -2, -1]] == 120).all(), "nothing of the ring for the codec to spread"
        assert len(np.unique(dots.reshape(len(LABELS), -1), axis=0)) == len(LABELS), "and yet they differ"


def test_before_compression_a_small_frame_is_the_same_whatever_is_on_the_card() -> None:
    blocks = (SMALL_SIDE_PIXELS, BLOCK_PIXELS, SMALL_SIDE_PIXELS, BLOCK_PIXELS, 3)
    frames = range(0, CROWDED.num_frames, 6)
    for index in frames:
        one, other = (picture_at(spec, index).astype(int) for spec in (CROWDED, OTHER_THINGS))
        assert np.array_equal(one.reshape(blocks).sum((1, 3)), other.reshape(blocks).sum((1, 3)))
        assert np.array_equal(one, other) == (card_at(CROWDED, index) is None)


@pytest.mark.slow
def test_after_compression_it_still_is(videos: tuple[Path, Path]) -> None:
    one, other = map(small_frames, videos)
    assert np.array_equal(one, other)
    whole = FrameRequest(width=SPATIAL_SIDE_PIXELS, height=SPATIAL_SIDE_PIXELS, indices=(1,))
    large = [Video(path).frames(whole).frames_THWC for path in videos]
    assert not np.array_equal(large[0], large[1]), "two videos"


def test_a_small_frame_shows_whether_there_is_a_card_and_where(videos: tuple[Path, Path]) -> None:
    half = SMALL_SIDE_PIXELS // 2
    for index, frame in enumerate(small_frames(videos[0])):
        quarters = [frame[r : r + half, c : c + half].mean() for r in (0, half) for c in (0, half)]
        card = card_at(CROWDED, index)
        assert (max(quarters) > 150) == (card is not None)
        if card is not None:
            assert PLACES[int(np.argmax(quarters))] == card[0]


def test_a_window_shows_the_thing_in_its_colour_on_dark_ground(videos: tuple[Path, Path]) -> None:
    video = Video(videos[0])
    for event in CROWDED.events:
        card = card_at(CROWDED, event.start_frame)
        assert card is not None and card[1] == event.label
        region = Region(Box(*window_of(card[0])))
        picture = video.frames(FrameRequest(width=56, height=56, indices=(event.start_frame,), region=region))
        pixels = picture.frames_THWC[0].reshape(-1, 3).astype(int)
        vivid = pixels[np.ptp(pixels, axis=1) > 90]
        assert 0.12 < len(vivid) / len(pixels) < 0.8
        assert min(COLOURS, key=lambda name: np.abs(vivid.mean(0) - COLOURS[name]).sum()) == event.label.split()[0]


def test_whole_frames_show_no_thing() -> None:
    assert all(label_at(CROWDED, index) is None for index in range(CROWDED.num_frames))


def test_windows_lie_in_the_middle_of_a_block_and_in_the_quarter_that_their_name_says() -> None:
    for place in PLACES:
        window = window_of(place)
        assert (window.right - window.left, window.bottom - window.top) == (WINDOW_PIXELS, WINDOW_PIXELS)
        assert window.left % BLOCK_PIXELS == BLOCK_PIXELS - window.right % BLOCK_PIXELS
        assert (window.top < SPATIAL_SIDE_PIXELS / 2) == place.startswith("top")
        assert (window.left < SPATIAL_SIDE_PIXELS / 2) == place.endswith("left")
    places = [place_of(replace(CROWDED, seed=seed), 0) for seed in range(400)]
    assert all(70 < places.count(place) < 130 for place in PLACES)


def test_rendering_again_gives_the_same_file_and_the_codec_that_players_know(tmp_path: Path) -> None:
    short = replace(CROWDED, num_frames=21, events=CROWDED.events[:5])
    for name in "abc":
        render_cards(short, tmp_path / f"{name}.mp4")
    assert len({(tmp_path / f"{name}.mp4").read_bytes() for name in "abc"}) == 1
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        frames = list(container.decode(stream))
    assert len(frames) == 21 and {(frame.width, frame.height) for frame in frames} == {(784, 784)}
