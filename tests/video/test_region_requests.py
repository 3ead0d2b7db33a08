"""A region of a frame is the whole decoded frame, cut, and then resized: to the last bit, on every kind of file, with
every backend, from the caches and without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.video.conftest import Reference
from tests.video.test_backends import DECODABLE, skip_unless_usable
from tests.videos.files import write_video
from tests.videos.kinds import DAMAGED_WRITERS
from verl_video_tools.core.errors import FrameRangeError
from verl_video_tools.core.types import Box, FrameRequest, PixelBox, Region
from verl_video_tools.video import Video
from verl_video_tools.video.frame_cache import ENTRY_BYTES, FrameCache
from verl_video_tools.video.frame_converter import FrameConverter

sizes = st.tuples(st.integers(1, 130), st.integers(1, 130))


@st.composite
def boxes(draw: st.DrawFn, width: int, height: int) -> PixelBox:
    left, top = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    return PixelBox(left, top, draw(st.integers(left + 1, width)), draw(st.integers(top + 1, height)))


def cut(picture_HWC: npt.NDArray[np.uint8], box: PixelBox) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(picture_HWC[box.top : box.bottom, box.left : box.right])


def resized(picture_HWC: npt.NDArray[np.uint8], width: int, height: int) -> npt.NDArray[np.uint8]:
    return FrameConverter().convert(av.VideoFrame.from_ndarray(picture_HWC, format="rgb24"), width, height)


def of(box: PixelBox, *indices: int, size: tuple[int, int] | None = None) -> FrameRequest:
    return FrameRequest(*(size or (box.width, box.height)), indices=indices, region=Region(Box(*box)))


# ---------------------------------------------------------------------------------------------- against the whole frame


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_each_kind_of_file(reference: Reference, data: st.DataObject) -> None:
    with Video(reference.path) as video:
        box = data.draw(boxes(video.info.width, video.info.height))
        size = data.draw(st.just((box.width, box.height)) | sizes)
        indices = data.draw(st.lists(st.integers(0, len(reference.numbers) - 1), min_size=1, max_size=2))
        request = of(box, *indices, size=size)
        batch = video.frames(request)
        for picture, index in zip(batch.frames_THWC, indices, strict=True):
            part = cut(reference.pictures[index], box)
            if size == (box.width, box.height):
                np.testing.assert_array_equal(picture, part)  # no resampler at all
            np.testing.assert_array_equal(picture, resized(part, *size))
        assert batch.region == box and batch.indices.tolist() == indices
        assert batch.records() == video.planned(request)


@pytest.mark.slow
@pytest.mark.parametrize("backend", DECODABLE)
def test_every_backend(backend: str, reference_of: Callable[[str], Reference]) -> None:
    skip_unless_usable(backend)
    with Video(reference_of("rotated_90.mp4").path, backend=backend) as video:
        width, height = video.info.width, video.info.height
        whole = video.frames_at_indices([3, 17]).frames_THWC
        boxes = PixelBox(0, 0, width, height), PixelBox(5, 3, 42, 40), PixelBox(width - 1, 0, width, 1)
        for box, size in zip(boxes, [(28, 56), (37, 37), (112, 84)], strict=True):  # smaller, its own, larger
            pictures = video.frames(of(box, 3, 17, size=size)).frames_THWC
            for picture, frame in zip(pictures, whole, strict=True):
                np.testing.assert_array_equal(picture, resized(cut(frame, box), *size))


@pytest.fixture(scope="module")
def opened(reference_of: Callable[[str], Reference]) -> Iterator[Video]:
    with Video(reference_of("h264.mp4").path) as video:
        yield video


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_cache_keeps_regions_and_whole_frames_apart(opened: Video, data: st.DataObject) -> None:
    request = st.builds(
        lambda box, index, size: FrameRequest(*size, indices=index, region=box and Region(Box(*box))),
        box=st.none() | boxes(96, 64),
        index=st.lists(st.integers(0, 99), min_size=1, max_size=3),
        size=st.sampled_from([(28, 28), (56, 28)]),
    )
    requests = data.draw(st.lists(request, min_size=1, max_size=4))
    expected = opened.decode_many(requests)
    cache = FrameCache(64 << 20)
    for is_again in (False, True):
        for request, wanted in zip(requests, expected, strict=True):
            batch = cache.decode(opened, request)
            np.testing.assert_array_equal(batch.frames_THWC, wanted.frames_THWC)
            assert batch.records() == wanted.records()
            assert batch.num_cached == len(batch) or not is_again


def test_a_region_comes_from_the_file_though_its_frame_is_cached_smaller(
    opened: Video, reference_of: Callable[[str], Reference]
) -> None:
    box, cache = PixelBox(10, 20, 66, 48), FrameCache(64 << 20)
    for size in ((12, 8), (96, 64)):
        cache.decode(opened, FrameRequest(*size, indices=(30,)))
    batch = cache.decode(opened, of(box, 30))
    assert batch.num_cached == 0
    np.testing.assert_array_equal(batch.frames_THWC[0], cut(reference_of("h264.mp4").pictures[30], box))
    assert cache.stats().stored_bytes == 3 * (12 * 8 + 96 * 64 + 56 * 28 + ENTRY_BYTES)


def test_parts_of_a_frame_at_one_size_are_cached_apart(opened: Video) -> None:
    cache = FrameCache(64 << 20)
    parts = [of(box, 5, size=(28, 28)) for box in (PixelBox(0, 0, 48, 32), PixelBox(48, 32, 96, 64))]
    for request in (FrameRequest(28, 28, indices=(5,)), *parts):
        assert cache.decode(opened, request).num_cached == 0


def test_two_units_of_one_region_share_a_cached_frame(opened: Video) -> None:
    cache = FrameCache(64 << 20)
    pixels = of(PixelBox(24, 16, 72, 48), 5, size=(28, 28))
    shares = FrameRequest(28, 28, indices=(5,), region=Region(Box(0.25, 0.25, 0.75, 0.75), "normalised"))
    assert cache.decode(opened, pixels).num_cached == 0
    assert cache.decode(opened, shares).num_cached == 1


def test_what_siblings_decode_along_is_their_region(opened: Video) -> None:
    cache, box = FrameCache(64 << 20), PixelBox(10, 20, 66, 48)
    cache.decode(opened, FrameRequest(96, 64, indices=(30,)), prefetch=[of(box, 31)])
    batch = cache.decode(opened, of(box, 31))
    assert batch.num_cached == 1
    np.testing.assert_array_equal(batch.frames_THWC, opened.frames(of(box, 31)).frames_THWC)


# ---------------------------------------------------------------------------------------------------------- coordinates


@pytest.mark.parametrize("name", ["rotated_90.mp4", "rotated_180.mp4", "rotated_270.mp4"])
def test_a_region_of_a_turned_video_is_of_what_is_displayed(
    name: str, reference_of: Callable[[str], Reference]
) -> None:
    with Video(reference_of(name).path) as video:
        shown = video.frames_at_indices([7]).frames_THWC[0]
        height, width = shown.shape[:2]
        box = PixelBox(0, 0, width // 2, height // 4)
        picture = video.frames(of(box, 7)).frames_THWC[0]
        np.testing.assert_array_equal(picture, shown[: height // 4, : width // 2])
        with pytest.raises(FrameRangeError, match="leaves the frame"):
            video.frames(of(PixelBox(0, 0, width + 1, height), 7))


def test_a_mirrored_video(tmp_path: Path) -> None:
    path = write_video(tmp_path / "m.mp4", num_frames=9, rotation_degrees=90, mirrored=True)
    with Video(path) as video:
        shown = video.frames_at_indices([7]).frames_THWC[0]
        np.testing.assert_array_equal(video.frames(of(PixelBox(3, 5, 40, 60), 7)).frames_THWC[0], shown[5:60, 3:40])


def test_pixels_that_are_not_square(tmp_path: Path) -> None:
    """They are shown as they are stored, as whole frames are, and a region is of that picture."""
    path = write_video(tmp_path / "wide.mp4", num_frames=9, codec_options={"x264-params": "sar=2/1"})
    with av.open(str(path)) as container:
        assert container.streams.video[0].sample_aspect_ratio == Fraction(2, 1)
    with Video(path) as video:
        shown = video.frames_at_indices([7]).frames_THWC[0]
        assert shown.shape == (64, 96, 3)
        half = FrameRequest(48, 64, indices=(7,), region=Region(Box(0.5, 0, 1, 1), "normalised"))
        np.testing.assert_array_equal(video.frames(half).frames_THWC[0], shown[:, 48:])


def test_frames_of_another_size_show_the_same_part(tmp_path: Path) -> None:
    """A stream may change its size half way; coordinates are those of the first frame."""
    first = write_video(tmp_path / "first.ts", num_frames=24, gop_frames=12)
    second = write_video(tmp_path / "second.ts", num_frames=24, gop_frames=12, width=192, height=128, start_seconds=0.8)
    (tmp_path / "joined.ts").write_bytes(first.read_bytes() + second.read_bytes())
    with Video(tmp_path / "joined.ts") as video:
        assert (video.info.width, video.info.height, video.info.num_frames) == (96, 64, 48)
        whole = video.frames_at_indices([40], height=128, width=192).frames_THWC[0]
        picture = video.frames(of(PixelBox(8, 4, 56, 60), 40, size=(96, 112))).frames_THWC[0]
        np.testing.assert_array_equal(picture, whole[8:120, 16:112])


def test_a_damaged_frame_shows_the_part_of_its_stand_in(tmp_path: Path) -> None:
    path = DAMAGED_WRITERS["corrupt.mp4"](tmp_path / "corrupt.mp4")
    box = PixelBox(8, 4, 64, 60)
    with Video(path) as video:
        parts = video.frames(of(box, *range(300)))
        whole = video.frames_at_indices(range(300))
    assert 0 < whole.corrupt.sum() < 300
    np.testing.assert_array_equal(parts.corrupt, whole.corrupt)
    np.testing.assert_array_equal(parts.indices, whole.indices)
    np.testing.assert_array_equal(parts.frames_THWC, whole.frames_THWC[:, 4:60, 8:64])


def test_a_shrunk_region_looks_like_one_of_another_library(opened: Video) -> None:
    box = PixelBox(2, 2, 90, 62)
    picture = opened.frames(of(box, 30, size=(44, 30))).frames_THWC[0]
    whole = Image.fromarray(opened.frames_at_indices([30]).frames_THWC[0])
    expected = np.asarray(whole.crop(box).resize((44, 30), Image.Resampling.BOX))
    assert np.abs(picture.astype(int) - expected).mean() < 2
