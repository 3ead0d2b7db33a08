"""Queries: what is found, what is encoded again and what is not, and what failures do."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save

from tests.services.retrieval.conftest import GOP_FRAMES, NUM_FRAMES, write_colours
from tests.services.retrieval.encoder import ColourEncoder
from tests.videos.files import remux
from verl_video_tools.core.errors import DeadlineError, FrameRangeError, RetrievalError, UsageError, VideoNotFoundError
from verl_video_tools.services.retrieval import RetrievalConfig, RetrievalService
from verl_video_tools.services.retrieval import service as retrieval_service
from verl_video_tools.services.retrieval.encoders import covering_size
from verl_video_tools.video import Video, pool
from verl_video_tools.video.identity import FileIdentity, file_identity
from verl_video_tools.video.source import Deadline

SECONDS = 30.0


def make_service(encoder: ColourEncoder | None = None, **fields: Any) -> RetrievalService:
    return RetrievalService(encoder or ColourEncoder(), RetrievalConfig(**fields))


def stored_file(folder: str) -> Path:
    """The one file of embeddings that a service has written."""
    (path,) = Path(folder, "colours").rglob("*.safetensors")
    return path


async def test_finds_what_the_text_says_and_breaks_ties_by_time(colours: str) -> None:
    service = make_service()
    candidates = list(range(0, NUM_FRAMES, 3))
    assert await service.best_frames(colours, candidates, "green", 4, SECONDS) == [30, 33, 36, 39]
    assert await service.best_frames(colours, candidates, "blue", 2, SECONDS) == [60, 63]
    assert await service.best_frames(colours, [5, 70], "blue", 4, SECONDS) == [70, 5]  # fewer candidates than asked
    assert await service.best_frames(colours, [], "blue", 4, SECONDS) == []


async def test_frames_are_encoded_once_whatever_candidates_name_them(colours: str) -> None:
    encoder = ColourEncoder()
    service = make_service(encoder, image_batch_size=8)
    await service.best_frames(colours, range(0, 40, 2), "red", 4, SECONDS)
    assert encoder.image_batches == [8, 8, 4]
    await service.best_frames(colours, range(0, 40, 2), "green", 4, SECONDS)
    assert encoder.image_batches == [8, 8, 4]
    await service.best_frames(colours, range(0, 40), "green", 4, SECONDS)
    assert sum(encoder.image_batches) == 40
    stats = service.stats()
    assert (stats.queries, stats.failures, stats.frames_asked, stats.frames_encoded) == (3, 0, 80, 40)


async def test_queries_on_one_video_share_its_frames_and_batch_their_texts(colours: str, tmp_path: Path) -> None:
    paths = [colours, *(shutil.copy(colours, tmp_path / f"{number}.mp4") for number in range(7))]
    encoder = ColourEncoder()
    service = make_service(encoder)
    queries = [
        service.best_frames(str(paths[number % 8]), range(0, 90, 5), f"{number} red", 2, SECONDS)
        for number in range(64)
    ]
    assert await asyncio.gather(*queries) == [[0, 5]] * 64
    assert sum(encoder.image_batches) == 8 * 18
    stats = service.stats()
    assert stats.text_queries == 64
    assert stats.text_queries / stats.text_batches > 4


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


async def test_the_same_text_is_encoded_once_per_batch(colours: str) -> None:
    encoder = ColourEncoder()
    service = make_service(encoder)
    await asyncio.gather(*(service.best_frames(colours, [0, 40], "green", 1, SECONDS) for _ in range(8)))
    assert encoder.text_batches == [["green"]]


async def test_no_batch_is_larger_than_allowed(colours: str) -> None:
    encoder = ColourEncoder()
    service = make_service(encoder, text_batch_size=5)
    await asyncio.gather(*(service.best_frames(colours, [0], f"{i} red", 1, SECONDS) for i in range(12)))
    assert [len(batch) for batch in encoder.text_batches] == [5, 5, 2]


# -------------------------------------------------------------------------------------------------------------- caches


async def test_embeddings_on_disk_outlive_the_service(colours: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    found = await make_service(disk_cache_dir=folder).best_frames(colours, range(0, 90, 9), "blue", 3, SECONDS)
    stored_file(folder)
    encoder = ColourEncoder()
    assert (
        await make_service(encoder, disk_cache_dir=folder).best_frames(colours, range(0, 90, 9), "blue", 3, SECONDS)
        == found
    )
    assert encoder.image_batches == []


async def test_nodes_that_share_a_folder_lose_nothing_of_each_other(colours: str, tmp_path: Path) -> None:
    encoder = ColourEncoder()
    one = make_service(encoder, disk_cache_dir=str(tmp_path))
    await one.best_frames(colours, [0], "red", 1, SECONDS)
    await make_service(disk_cache_dir=str(tmp_path)).best_frames(colours, range(0, 80, 2), "red", 1, SECONDS)
    await one.best_frames(colours, range(0, 80, 4), "red", 1, SECONDS)
    assert sum(encoder.image_batches) == 1  # what the other has added since is read, though the video is in memory
    await one.best_frames(colours, [1], "red", 1, SECONDS)

    late = ColourEncoder()
    await make_service(late, disk_cache_dir=str(tmp_path)).best_frames(
        colours, [1, *range(0, 80, 2)], "red", 1, SECONDS
    )
    assert sum(late.image_batches) == 0


async def test_a_damaged_cache_file_costs_its_embeddings_and_nothing_else(colours: str, tmp_path: Path) -> None:
    folder = str(tmp_path)
    await make_service(disk_cache_dir=folder).best_frames(colours, [0, 40], "green", 1, SECONDS)
    path = stored_file(folder)
    path.write_bytes(path.read_bytes()[:20])
    encoder = ColourEncoder()
    assert await make_service(encoder, disk_cache_dir=folder).best_frames(colours, [0, 40], "green", 1, SECONDS) == [40]
    assert encoder.image_batches == [2]
    encoder = ColourEncoder()
    await make_service(encoder, disk_cache_dir=folder).best_frames(colours, [0, 40], "green", 1, SECONDS)
    assert encoder.image_batches == []  # written anew


@pytest.mark.parametrize(
    "tensors",
    [
        {"indices": np.ones(3, np.int64), "embeddings": np.ones((3, 2), np.float32)},  # twice the same frame
        {"indices": np.array(0), "embeddings": np.ones((1, 3), np.float32)},
        {"indices": np.array([0, 40]), "embeddings": np.ones((2, 3), bool)},
        {"indices": np.array([0, 40]), "embeddings": np.ones((2, 7), np.float32)},
        {"indices": np.array([0.0, 40.0]), "embeddings": np.ones((2, 3), np.float32)},
        {"indices": np.array([0, 40]), "embeddings": np.ones((2, 3), np.float32), "checksum": np.ones((0,), np.int64)},
    ],
)
async def test_whole_tensors_that_are_no_embeddings_of_ours_are_replaced(
    colours: str, tmp_path: Path, tensors: dict[str, Any]
) -> None:
    folder = str(tmp_path)
    await make_service(disk_cache_dir=folder).best_frames(colours, [0, 40], "green", 1, SECONDS)
    path = stored_file(folder)
    path.write_bytes(save(tensors))
    for expected in ([3], []):  # encoded again, and written anew
        encoder = ColourEncoder()
        service = make_service(encoder, disk_cache_dir=folder)
        assert await service.best_frames(colours, [0, 40, 80], "green", 1, SECONDS) == [40]
        assert encoder.image_batches == expected


async def test_a_bit_of_an_embedding_that_flips_costs_it(colours: str, tmp_path: Path) -> None:
    folder = str(tmp_path)
    await make_service(disk_cache_dir=folder).best_frames(colours, [0, 40], "green", 1, SECONDS)
    path = stored_file(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 64]) + whole[-2:])
    encoder = ColourEncoder()
    await make_service(encoder, disk_cache_dir=folder).best_frames(colours, [0, 40], "green", 1, SECONDS)
    assert encoder.image_batches == [2] and path.read_bytes() == whole


async def test_a_file_that_changed_is_another_video(tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    write_colours(path)
    encoder = ColourEncoder()
    service = make_service(encoder)
    await service.best_frames(str(path), [0, 40], "green", 1, SECONDS)
    write_colours(path)
    await service.best_frames(str(path), [0, 40], "green", 1, SECONDS)
    assert encoder.image_batches == [2, 2]


async def test_memory_is_bounded_and_forgets_the_least_recently_used_video(colours: str, tmp_path: Path) -> None:
    other, third = (str(shutil.copy(colours, tmp_path / name)) for name in ("b.mp4", "c.mp4"))
    encoder = ColourEncoder()
    service = make_service(encoder, memory_cache_bytes=2 * 10 * (8 + 12))  # two videos of ten frames
    for path in (colours, other, colours, third, colours):
        await service.best_frames(path, range(10), "red", 1, SECONDS)
        assert service.stats().stored_bytes <= 400
    assert sum(encoder.image_batches) == 30
    await service.best_frames(other, range(10), "red", 1, SECONDS)
    assert sum(encoder.image_batches) == 40


# --------------------------------------------------------------------------------------------------------- frame modes


async def test_key_frames_stand_for_the_candidates_behind_them(colours: str) -> None:
    encoder = ColourEncoder()
    service = make_service(encoder, frame_mode="keyframe")
    candidates = list(range(3, NUM_FRAMES, 4))
    assert await service.best_frames(colours, candidates, "blue", 3, SECONDS) == [63, 67, 71]
    assert sum(encoder.image_batches) == NUM_FRAMES // GOP_FRAMES


async def test_key_frames_are_known_though_readers_are_closed(
    colours: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process keeps a few readers open; with more videos in turn each query would read its whole file again."""
    opened: list[str] = []
    open_video = retrieval_service.open_video

    async def noted(path: str, deadline_seconds: float) -> Video:
        opened.append(path)
        return await open_video(path, deadline_seconds)

    monkeypatch.setattr(retrieval_service, "open_video", noted)
    paths = [str(shutil.copy(colours, tmp_path / f"{number}.mp4")) for number in range(pool.MAX_OPEN_VIDEOS + 1)]
    service = make_service(frame_mode="keyframe")
    for path in paths:
        assert await service.best_frames(path, range(0, NUM_FRAMES, 4), "blue", 1, SECONDS) == [60]
    opened.clear()
    for path in paths:
        assert await service.best_frames(path, range(0, NUM_FRAMES, 4), "green", 1, SECONDS) == [32]
    assert opened == []
    write_colours(Path(paths[0]))  # another file now
    await service.best_frames(paths[0], range(0, NUM_FRAMES, 4), "green", 1, SECONDS)
    assert set(opened) == {paths[0]}


async def test_where_key_frames_are_too_few_to_choose_among_candidates_are_compared_exactly(colours: str) -> None:
    encoder = ColourEncoder()
    service = make_service(encoder, frame_mode="keyframe")
    assert await service.best_frames(colours, [20, 25, 29, 30, 31], "green", 4, SECONDS) == [30, 31, 20, 25]
    assert sum(encoder.image_batches) == 5


async def test_queries_wait_for_a_slow_file_without_a_thread_each(
    colours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others would wait for them: a process has few decode threads."""
    in_flight, most_in_flight, deadlines = 0, 0, []
    keyframe_indices = Video.keyframe_indices

    def slowly(video: Video, deadline: Deadline) -> list[int]:
        nonlocal in_flight, most_in_flight
        in_flight += 1
        most_in_flight = max(most_in_flight, in_flight)
        deadlines.append(deadline.left_seconds())
        time.sleep(0.1)
        in_flight -= 1
        return keyframe_indices(video, deadline)

    monkeypatch.setattr(Video, "keyframe_indices", slowly)
    service = make_service(frame_mode="keyframe")
    queries = [service.best_frames(colours, range(0, NUM_FRAMES, 4), "blue", 1, SECONDS) for _ in range(4)]
    assert await asyncio.gather(*queries) == [[60]] * 4
    assert most_in_flight == 1
    assert all(deadline is not None and 0 < deadline < SECONDS for deadline in deadlines)


async def test_what_comes_before_the_first_key_frame_is_not_compared_by_the_last_one(
    colours: str, tmp_path: Path
) -> None:
    """A file cut without encoding it anew begins between two key frames."""
    cut = str(remux(Path(colours), tmp_path / "cut.mp4", from_seconds=0.5))
    service = make_service(frame_mode="keyframe")
    assert await service.best_frames(cut, range(0, 85, 2), "red", 3, SECONDS) == [0, 2, 4]
    assert await service.best_frames(cut, range(0, 85, 2), "blue", 1, SECONDS) == [56]
    last_group = str(remux(Path(colours), tmp_path / "last.mp4", from_seconds=8.5))  # shows no key frame at all
    assert await service.best_frames(last_group, range(5), "blue", 2, SECONDS) == [0, 1]


# ------------------------------------------------------------------------------------------------------------ failures


async def test_an_encoder_that_fails_is_an_error_and_not_the_first_frames(colours: str) -> None:
    encoder = ColourEncoder()
    service = make_service(encoder)
    encoder.fails = True
    with pytest.raises(RetrievalError, match="the encoder failed: RuntimeError: out of memory"):
        await service.best_frames(colours, range(9), "red", 4, SECONDS)
    encoder.fails = False
    assert await service.best_frames(colours, range(9), "red", 1, SECONDS) == [0]
    assert service.stats().failures == 1


async def test_video_errors_keep_their_type_and_leave_the_service_alive(colours: str, tmp_path: Path) -> None:
    service = make_service()
    with pytest.raises(VideoNotFoundError):
        await service.best_frames(str(tmp_path / "none.mp4"), [0], "red", 1, SECONDS)
    with pytest.raises(FrameRangeError, match="90"):
        await service.best_frames(colours, [0, 90], "red", 1, SECONDS)
    assert await service.best_frames(colours, [0, 89], "red", 1, SECONDS) == [0]


async def test_a_query_out_of_time_says_so_and_others_go_on(colours: str) -> None:
    service = make_service(max_wait_ms=60_000.0)
    with pytest.raises(RetrievalError, match=r"2 frames were not searched within 0\.05 s"):
        await service.best_frames(colours, [0, 40], "green", 1, 0.05)
    service = make_service()
    late = service.best_frames(colours, range(50), "green", 1, 0.0)
    other = service.best_frames(colours, [0, 40], "green", 1, SECONDS)
    error, found = await asyncio.gather(late, other, return_exceptions=True)
    assert isinstance(error, RetrievalError)
    assert found == [40]


def test_config_names_what_is_wrong() -> None:
    with pytest.raises(UsageError, match=r"RetrievalConfig\.image_batch_size must be at least 1, got 0"):
        RetrievalConfig.from_fields({"image_batch_size": 0})
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
    for module in (pool, retrieval_service):
        monkeypatch.setattr(module, "file_identity", hang, raising=False)
    start = time.monotonic()
    with pytest.raises((DeadlineError, RetrievalError)):
        await service.best_frames(colours, [0, 40], "green", 1, 0.2)
    release.set()
    assert time.monotonic() - start < 5.0
    assert service.stats().failures == 1
    assert await service.best_frames(colours, [0, 40], "green", 1, SECONDS) == [40]
