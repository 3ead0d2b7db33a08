"""Queries: what is found, what is encoded again and what is not, and what failures do."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.services.retrieval.conftest import NUM_FRAMES, write_colours
from tests.services.retrieval.encoder import ColourEncoder
from verl_video_tools.core.errors import DeadlineError, FrameRangeError, RetrievalError, UsageError, VideoNotFoundError
from verl_video_tools.services import retrieval as retrieval_service
from verl_video_tools.services.encoders import covering_size
from verl_video_tools.services.retrieval import RetrievalConfig, RetrievalService
from verl_video_tools.video import decoding
from verl_video_tools.video.video import FileIdentity, file_identity

SECONDS = 30.0


def make_service(encoder: ColourEncoder | None = None) -> RetrievalService:
    return RetrievalService(encoder or ColourEncoder())


async def test_finds_what_the_text_says_and_breaks_ties_by_time(colours: str) -> None:
    service = make_service()
    candidates = list(range(0, NUM_FRAMES, 3))
    assert await service.best_frames(colours, candidates, "green", 4, SECONDS) == [30, 33, 36, 39]
    assert await service.best_frames(colours, candidates, "blue", 2, SECONDS) == [60, 63]
    assert await service.best_frames(colours, [5, 70], "blue", 4, SECONDS) == [70, 5]  # fewer candidates than asked
    assert await service.best_frames(colours, [], "blue", 4, SECONDS) == []


async def test_frames_are_encoded_once_whatever_candidates_name_them(colours: str) -> None:
    encoder = ColourEncoder()
    service = make_service(encoder)
    await service.best_frames(colours, range(0, 40, 2), "red", 4, SECONDS)
    assert encoder.image_batches == [20]
    await service.best_frames(colours, range(0, 40, 2), "green", 4, SECONDS)
    assert encoder.image_batches == [20]
    await service.best_frames(colours, range(0, 40), "green", 4, SECONDS)
    assert sum(encoder.image_batches) == 40


async def test_queries_on_one_video_share_its_frames(colours: str, tmp_path: Path) -> None:
    paths = [colours, *(shutil.copy(colours, tmp_path / f"{number}.mp4") for number in range(7))]
    encoder = ColourEncoder()
    service = make_service(encoder)
    queries = [
        service.best_frames(str(paths[number % 8]), range(0, 90, 5), f"{number} red", 2, SECONDS)
        for number in range(64)
    ]
    assert await asyncio.gather(*queries) == [[0, 5]] * 64
    assert sum(encoder.image_batches) == 8 * 18


@pytest.mark.parametrize(("width", "height"), [(6798, 2), (2, 6798)])
async def test_a_very_elongated_video_takes_no_more_memory_than_others(tmp_path: Path, width: int, height: int) -> None:
    """Covering 224 pixels with all of it would take 512 MB a frame."""

    class Cropping(ColourEncoder):
        crops_centre = True

        def image_size(self, width: int, height: int) -> tuple[int, int]:
            return covering_size(width, height, 224)

        def encode_images(self, frames_THWC: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
            shapes.append(frames_THWC.shape)
            return super().encode_images(frames_THWC)

    shapes: list[tuple[int, ...]] = []
    path = write_colours(tmp_path / "strip.mp4", width, height)
    assert await make_service(Cropping()).best_frames(path, [0, 40, 80], "green", 1, SECONDS) == [40]
    assert sorted(shapes[0]) == [3, 3, 224, 16 * 224]


# -------------------------------------------------------------------------------------------------------------- caches


async def test_a_file_that_changed_is_another_video(tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    write_colours(path)
    encoder = ColourEncoder()
    service = make_service(encoder)
    await service.best_frames(str(path), [0, 40], "green", 1, SECONDS)
    write_colours(path)
    await service.best_frames(str(path), [0, 40], "green", 1, SECONDS)
    assert encoder.image_batches == [2, 2]


async def test_memory_is_bounded_and_forgets_the_least_recently_used_video(
    colours: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, third = (str(shutil.copy(colours, tmp_path / name)) for name in ("b.mp4", "c.mp4"))
    encoder = ColourEncoder()
    monkeypatch.setattr(retrieval_service, "MEMORY_BYTES", 2 * 10 * 12)  # two videos of ten frames
    service = make_service(encoder)
    for path in (colours, other, colours, third, colours):
        await service.best_frames(path, range(10), "red", 1, SECONDS)
        assert sum(map(len, service._videos.values())) <= 20
    assert sum(encoder.image_batches) == 30
    await service.best_frames(other, range(10), "red", 1, SECONDS)
    assert sum(encoder.image_batches) == 40


# ------------------------------------------------------------------------------------------------------------ failures


async def test_an_encoder_that_fails_is_an_error_and_not_the_first_frames(colours: str) -> None:
    encoder = ColourEncoder()
    service = make_service(encoder)
    encoder.fails = True
    with pytest.raises(RetrievalError, match="the encoder failed: RuntimeError: out of memory"):
        await service.best_frames(colours, range(9), "red", 4, SECONDS)
    encoder.fails = False
    assert await service.best_frames(colours, range(9), "red", 1, SECONDS) == [0]


async def test_video_errors_keep_their_type_and_leave_the_service_alive(colours: str, tmp_path: Path) -> None:
    service = make_service()
    with pytest.raises(VideoNotFoundError):
        await service.best_frames(str(tmp_path / "none.mp4"), [0], "red", 1, SECONDS)
    with pytest.raises(FrameRangeError, match="90"):
        await service.best_frames(colours, [0, 90], "red", 1, SECONDS)
    assert await service.best_frames(colours, [0, 89], "red", 1, SECONDS) == [0]


async def test_a_query_out_of_time_says_so_and_others_go_on(colours: str) -> None:
    class Slow(ColourEncoder):
        def encode_texts(self, texts: list[str]) -> npt.NDArray[np.float32]:
            time.sleep(0.5)
            return super().encode_texts(texts)

    service = make_service(Slow())
    with pytest.raises(RetrievalError, match=r"2 frames were not searched within 0\.05 s"):
        await service.best_frames(colours, [0, 40], "green", 1, 0.05)
    service = make_service()
    late = service.best_frames(colours, range(50), "green", 1, 0.0)
    other = service.best_frames(colours, [0, 40], "green", 1, SECONDS)
    error, found = await asyncio.gather(late, other, return_exceptions=True)
    assert isinstance(error, RetrievalError)
    assert found == [40]


def test_config_names_what_is_wrong() -> None:
    with pytest.raises(UsageError, match=r"RetrievalConfig\.num_gpus must be 0 to 1, got -1"):
        RetrievalConfig.from_fields({"num_gpus": -1})
    with pytest.raises(UsageError, match="pretrained must be None unless the backend is open_clip"):
        RetrievalConfig(pretrained="webli")
    with pytest.raises(UsageError, match="has no field 'modell'"):
        RetrievalConfig.from_fields({"modell": "x"})
    assert RetrievalConfig().digest != RetrievalConfig(num_gpus=0.5).digest


async def test_a_file_system_that_does_not_answer_ends_a_query_at_its_deadline(
    colours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def hang(path: str) -> FileIdentity:
        release.wait(10)
        return file_identity(path)

    service = make_service()
    # Wherever it is looked up: on the loop it would stop all queries.
    for module in (decoding, retrieval_service):
        monkeypatch.setattr(module, "file_identity", hang, raising=False)
    start = time.monotonic()
    with pytest.raises((DeadlineError, RetrievalError)):
        await service.best_frames(colours, [0, 40], "green", 1, 0.2)
    release.set()
    assert time.monotonic() - start < 5.0
    assert await service.best_frames(colours, [0, 40], "green", 1, SECONDS) == [40]
