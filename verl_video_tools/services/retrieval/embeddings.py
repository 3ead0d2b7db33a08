"""Embeddings of the frames of videos: in memory up to so many bytes, and as files that outlive the run.

Axes: T frames of one video in ascending order of their index, D dimensions of an embedding.
"""

from __future__ import annotations

import hashlib
import logging
import os
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from verl_video_tools.core.files import whole_file

logger = logging.getLogger(__name__)

_SUFFIX = ".safetensors"
_NUM_JOINED = 16
"""So many files of about one size are joined."""
_MAX_LISTINGS = 3
"""Looks at a video's folder per query: between a look and the reading another node may have joined files."""


@dataclass(frozen=True)
class FrameEmbeddings:
    """What is known of one video.

    Attributes:
        indices_T: int64, ascending, without duplicates.
        embeddings_TD: float32.
        files: of `DiskTier`, whose frames are all among these; they need not be read again.
    """

    indices_T: npt.NDArray[np.int64]
    embeddings_TD: npt.NDArray[np.float32]
    files: frozenset[str] = frozenset()

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

    def joined_with(self, *others: FrameEmbeddings) -> FrameEmbeddings:
        """These, and those frames of others that are not among them."""
        further = [other for other in others if len(other.indices_T)]
        if not further:
            return self
        parts = [self, *further] if len(self.indices_T) else further
        # Of a frame that several have, the first one's row.
        indices_T, rows = np.unique(np.concatenate([part.indices_T for part in parts]), return_index=True)
        return replace(self, indices_T=indices_T, embeddings_TD=np.concatenate([p.embeddings_TD for p in parts])[rows])


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
    """A folder per video and encoder, with a safetensors file for each batch of frames; safe to share.

    Files are written as a whole, under a name that their frames decide, and never changed. Many of about one size are
    joined into one, so that an embedding is written a few times, however often frames are added to its video. A file
    that cannot be read or written costs its embeddings, never the query; one that is damaged is removed.
    """

    def __init__(self, folder: Path, encoder_identity: str) -> None:
        self._folder = folder / encoder_identity

    def with_stored(self, digest: str, known: FrameEmbeddings) -> FrameEmbeddings:
        """What is known of a video, and what those files hold that were not read for it yet."""
        parts, whole, tried = [known], known.files, known.files
        for _ in range(_MAX_LISTINGS):
            names = self._names(digest)
            if names <= tried:
                break
            for name in sorted(names - tried):
                found = self._read(digest, name)
                if found is not None:
                    parts.append(found)
                    whole |= {name}
            tried |= names
        return replace(parts[0].joined_with(*parts[1:]), files=whole & names)

    def add(self, digest: str, embeddings: FrameEmbeddings) -> frozenset[str]:
        """Keep embeddings of frames in a file. Its name, for `FrameEmbeddings.files`; none where it is not written."""
        written: frozenset[str] = frozenset()
        try:
            written |= {self._write(digest, embeddings)}
            self._join_files(digest)
        except OSError as error:
            logger.warning("retrieval cache: %s; going on without writing", error)
        return written

    def _names(self, digest: str) -> frozenset[str]:
        try:
            return frozenset(name for name in os.listdir(self._folder / digest) if name.endswith(_SUFFIX))
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            logger.warning("retrieval cache: %s; its frames are encoded again", error)
            return frozenset()

    def _read(self, digest: str, name: str) -> FrameEmbeddings | None:
        path = self._folder / digest / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:  # another node has joined it with others
            return None
        except OSError as error:
            logger.warning("retrieval cache: %s cannot be read (%s); its frames are encoded again", path, error)
            return None
        try:
            tensors = load(content)
            found = FrameEmbeddings(tensors["indices"], tensors["embeddings"])
            if int(tensors["checksum"][0]) == _checksum(digest, found):
                return found
            fault = "its checksum is another"
        except Exception as error:  # whatever a file of another kind leads the library to
            fault = str(error)
        logger.warning("retrieval cache: %s is damaged (%s); its frames are encoded again", path, fault)
        with suppress(OSError):  # where we may not write, it costs a warning each time
            path.unlink()
        return None

    def _write(self, digest: str, embeddings: FrameEmbeddings) -> str:
        """Nodes that encode the same frames at the same time write one file."""
        checksum = np.array([_checksum(digest, embeddings)], np.int64)
        content = save({"indices": embeddings.indices_T, "embeddings": embeddings.embeddings_TD, "checksum": checksum})
        folder = self._folder / digest
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(embeddings.indices_T.tobytes()).hexdigest()[:16] + _SUFFIX
        with whole_file(folder / name) as partial:
            partial.write_bytes(content)
        return name

    def _join_files(self, digest: str) -> None:
        """Where there are many files of about one size, put one in their place. Ended half way, it leaves both."""
        names = self._names(digest)
        if len(names) < _NUM_JOINED:
            return
        of_size: dict[int, list[str]] = defaultdict(list)
        for name in sorted(names):
            with suppress(FileNotFoundError):
                num_bytes = (self._folder / digest / name).stat().st_size
                of_size[num_bytes.bit_length() // 4].append(name)  # within a factor of 16, as many as are joined
        for alike in of_size.values():
            if len(alike) < _NUM_JOINED:
                continue
            read = {name: found for name in alike if (found := self._read(digest, name)) is not None}
            if read:
                joined = self._write(digest, FrameEmbeddings.none().joined_with(*read.values()))
                for name in read.keys() - {joined}:
                    (self._folder / digest / name).unlink(missing_ok=True)


def _checksum(digest: str, embeddings: FrameEmbeddings) -> int:
    """CRC-32 of a video's name and of its embeddings, their types and shapes included."""
    checksum = zlib.crc32(digest.encode())
    for array in (embeddings.indices_T, embeddings.embeddings_TD):
        checksum = zlib.crc32(f"{array.dtype} {array.shape}".encode(), checksum)
        checksum = zlib.crc32(np.ascontiguousarray(array).data, checksum)
    return checksum
