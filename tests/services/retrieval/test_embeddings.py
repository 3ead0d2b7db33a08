"""Files of embeddings: what is written how often, and what becomes of it where nodes share a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.services.retrieval.encoder import ColourEncoder
from verl_video_tools.services.retrieval import RetrievalConfig, RetrievalService
from verl_video_tools.services.retrieval.embeddings import DiskTier, FrameEmbeddings

SECONDS = 30.0


def some_embeddings(first: int, num: int = 1) -> FrameEmbeddings:
    indices_T = np.arange(first, first + num)
    return FrameEmbeddings(indices_T, np.stack([indices_T, indices_T + 0.5], axis=1).astype(np.float32))


def known_frames(tier: DiskTier) -> list[int]:
    known = tier.with_stored("video", FrameEmbeddings.none())
    np.testing.assert_array_equal(known.embeddings_TD, some_embeddings(0, 100).of(known.indices_T.tolist()))
    return known.indices_T.tolist()


async def test_frames_that_come_one_by_one_are_written_and_read_a_few_times(
    colours: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_bytes = {"written": 0, "read": 0}
    write_bytes, read_bytes = Path.write_bytes, Path.read_bytes

    def write(path: Path, content: bytes) -> int:
        num_bytes["written"] += len(content)
        return write_bytes(path, content)

    def read(path: Path) -> bytes:
        content = read_bytes(path)
        num_bytes["read"] += len(content)
        return content

    class Wide(ColourEncoder):
        def encode_images(self, frames_THWC: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
            return np.pad(super().encode_images(frames_THWC), ((0, 0), (0, 509)))

        def encode_texts(self, texts: list[str]) -> npt.NDArray[np.float32]:
            return np.pad(super().encode_texts(texts), ((0, 0), (0, 509)))

    monkeypatch.setattr(Path, "write_bytes", write)
    monkeypatch.setattr(Path, "read_bytes", read)
    config = RetrievalConfig(disk_cache_dir=str(tmp_path), max_wait_ms=0.0)
    service = RetrievalService(Wide(), config)
    for index in range(80):
        await service.best_frames(colours, range(index + 1), "red", 1, SECONDS)
    files = list(Path(tmp_path, "colours").rglob("*.safetensors"))
    stored_bytes = sum(path.stat().st_size for path in files)
    assert len(files) < 32 and stored_bytes > 80 * 512 * 4
    assert num_bytes["written"] < 4 * stored_bytes and num_bytes["read"] < 4 * stored_bytes

    late = Wide()
    await RetrievalService(late, config).best_frames(colours, range(80), "red", 1, SECONDS)
    assert late.image_batches == []


def test_files_that_another_node_joins_while_they_are_read_are_found_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = DiskTier(tmp_path, "encoder"), DiskTier(tmp_path, "encoder")
    for index in range(15):
        one.add("video", some_embeddings(index))
    list_names = other._names
    listed: list[int] = []

    def list_before_they_are_joined(digest: str) -> frozenset[str]:
        names = list_names(digest)
        if not listed:
            one.add("video", some_embeddings(15))
        listed.append(len(names))
        return names

    monkeypatch.setattr(other, "_names", list_before_they_are_joined)
    assert known_frames(other) == list(range(16))
    assert listed[:2] == [15, 1]


def test_joining_that_ends_half_way_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = DiskTier(tmp_path, "encoder")
    for index in range(15):
        tier.add("video", some_embeddings(index))

    unlink = Path.unlink

    def fail(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".safetensors":
            raise OSError("killed")
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", fail)
        tier.add("video", some_embeddings(15))
    files = list(tmp_path.rglob("*.safetensors"))
    assert len(files) == 17
    assert known_frames(tier) == list(range(16))
    min(files, key=lambda path: path.stat().st_size).write_bytes(b"damaged")
    tier.add("video", some_embeddings(16))
    assert known_frames(tier) == list(range(17))
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
