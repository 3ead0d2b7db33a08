"""Embeddings of the frames of videos: in memory up to so many bytes, and as files that outlive the run.

Axes: T frames of one video in ascending order of their index, D dimensions of an embedding.
"""

from __future__ import annotations

import logging
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from verl_video_tools.core.files import whole_file

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FrameEmbeddings:
    """What is known of one video.

    Attributes:
        indices_T: int64, ascending, without duplicates.
        embeddings_TD: float32.
    """

    indices_T: npt.NDArray[np.int64]
    embeddings_TD: npt.NDArray[np.float32]

    @classmethod
    def none(cls) -> FrameEmbeddings:
        """Nothing known yet."""
        return cls(np.empty(0, np.int64), np.empty((0, 0), np.float32))

    @property
    def nbytes(self) -> int:
        return self.indices_T.nbytes + self.embeddings_TD.nbytes

    def missing(self, indices: Sequence[int]) -> list[int]:
        """Those of `indices` that are not known, ascending."""
        missing: list[int] = np.setdiff1d(indices, self.indices_T).tolist()
        return missing

    def of(self, indices: Sequence[int]) -> npt.NDArray[np.float32]:
        """Rows for `indices`, all of which are known."""
        return self.embeddings_TD[np.searchsorted(self.indices_T, indices)]

    def with_frames(self, indices: Sequence[int], embeddings_TD: npt.NDArray[np.float32]) -> FrameEmbeddings:
        """These and further frames, none of them known before."""
        if len(self.indices_T) == 0:
            joined, rows_TD = np.asarray(indices, np.int64), embeddings_TD
        else:
            joined = np.concatenate([self.indices_T, np.asarray(indices, np.int64)])
            rows_TD = np.concatenate([self.embeddings_TD, embeddings_TD])
        order = np.argsort(joined)
        return FrameEmbeddings(joined[order], rows_TD[order])

    def joined_with(self, other: FrameEmbeddings) -> FrameEmbeddings:
        """These, and those frames of another that are not among them."""
        further = other.indices_T[np.isin(other.indices_T, self.indices_T, invert=True)].tolist()
        return self.with_frames(further, other.of(further)) if further else self


class HasBytes(Protocol):
    """Embeddings, or an array."""

    @property
    def nbytes(self) -> int: ...


Kept = TypeVar("Kept", bound=HasBytes)


class MemoryTier(Generic[Kept]):
    """What is known by video; the least recently used one goes first."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._videos: OrderedDict[str, Kept] = OrderedDict()
        self.stored_bytes = 0

    def get(self, digest: str) -> Kept | None:
        if digest in self._videos:
            self._videos.move_to_end(digest)
        return self._videos.get(digest)

    def put(self, digest: str, kept: Kept) -> None:
        """Keep what is known of a video in place of what was before; one larger than the whole tier is not kept."""
        known = self._videos.pop(digest, None)
        self.stored_bytes += kept.nbytes - (known.nbytes if known is not None else 0)
        self._videos[digest] = kept
        while self.stored_bytes > self._capacity_bytes:
            _, dropped = self._videos.popitem(last=False)
            self.stored_bytes -= dropped.nbytes


class DiskTier:
    """A safetensors file per video and encoder; safe to share, since files are replaced as a whole.

    Of two nodes that write about one video at the same moment one may lose its frames, which are then encoded again. A
    file that cannot be read or written costs its embeddings, never the query.
    """

    def __init__(self, folder: Path, encoder_identity: str) -> None:
        self._folder = folder / encoder_identity

    def read(self, digest: str) -> FrameEmbeddings | None:
        path = self._path(digest)
        try:
            tensors = load(path.read_bytes())
            found = FrameEmbeddings(tensors["indices"], tensors["embeddings"])
            is_whole = int(tensors["checksum"][0]) == _checksum(digest, found)
        except FileNotFoundError:
            return None
        except Exception as error:  # whatever a file of another kind leads the library to
            logger.warning("retrieval cache: %s cannot be read (%s); its frames are encoded again", path, error)
            return None
        if not is_whole:
            logger.warning("retrieval cache: %s is damaged; its frames are encoded again", path)
            return None
        return found

    def add(self, digest: str, embeddings: FrameEmbeddings) -> None:
        """Keep embeddings beside those that the file holds, which another node may have added."""
        embeddings = embeddings.joined_with(self.read(digest) or FrameEmbeddings.none())
        checksum = np.array([_checksum(digest, embeddings)], np.int64)
        content = save({"indices": embeddings.indices_T, "embeddings": embeddings.embeddings_TD, "checksum": checksum})
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with whole_file(self._path(digest)) as partial:
                partial.write_bytes(content)
        except OSError as error:
            logger.warning("retrieval cache: %s; going on without writing", error)

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.safetensors"


def _checksum(digest: str, embeddings: FrameEmbeddings) -> int:
    """CRC-32 of a video's name and of its embeddings, their types and shapes included."""
    checksum = zlib.crc32(digest.encode())
    for array in (embeddings.indices_T, embeddings.embeddings_TD):
        checksum = zlib.crc32(f"{array.dtype} {array.shape}".encode(), checksum)
        checksum = zlib.crc32(np.ascontiguousarray(array).data, checksum)
    return checksum
