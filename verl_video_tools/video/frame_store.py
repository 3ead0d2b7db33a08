"""Frames as files: one file per frame, shared by all processes that see the folder, bounded by dropping the oldest.

No memory map (a full /dev/shm would kill the process), no pickle, no daemon. A frame appears whole by renaming, so a
reader never sees half of one, and a writer that is killed leaves only a temporary file, which is swept up later.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from verl_video_tools.video.batch import FrameFacts
from verl_video_tools.video.file_locks import locked

logger = logging.getLogger(__name__)

MAGIC = b"vvtfram2"  # frames of "vvtframe" may be predicted from damaged ones, and say that they are sound
HEADER = struct.Struct("<8sIIqd?3xI")
"""Magic, width, height, index of the frame shown, its time in seconds, corrupt, CRC-32 of the key, of all before it and
of the rest of the file: RGB bytes, row by row."""
_CHECKSUM_BYTES = 4

LEDGER = struct.Struct("<qI")
"""Sum of the sizes of all frames, and its CRC-32, by which a damaged sum is known; changed only under the file's lock,
before a frame appears or after it is gone."""

PAGE_BYTES = 4096
LOW_WATER = 0.9
"""Share of the capacity that is left in use when frames are dropped, so that not every write has to."""
STALE_SECONDS = 60.0
"""Age at which a temporary file has no writer any more."""
LEDGER_PAUSES_SECONDS = (0.001, 0.005, 0.02, 0.05)
"""Between tries for the ledger. Nobody waits longer: to keep a frame is worth less than its request's deadline."""


@dataclass(frozen=True, order=True, slots=True)
class FrameKey:
    """A frame, or a part of one, at a size."""

    video: str
    """Names the file, in its state, and what decodes it; fit for a file name."""
    index: int
    width: int
    height: int
    region: tuple[int, ...] = ()
    """Left, top, right, bottom of the part in pixels of the displayed frame; empty for the whole."""

    @property
    def place(self) -> str:
        """Which pixels of the video; fit for a file name."""
        return "_".join(map(str, (self.index, *self.region)))


class FrameStore:
    """A folder of frames, bounded in bytes. Safe for any number of threads and processes; a fork may share it.

    A store never fails or holds up a request: what cannot be read is a miss, what cannot be written, or not now, is
    not kept.

    Args:
        folder: made if need be.
        capacity_bytes: bound on the sum of the frames' sizes, each rounded up to whole pages.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: Path, capacity_bytes: int) -> None:
        self.folder = folder
        self.capacity_bytes = capacity_bytes
        self._frames = folder / "frames"
        self._incoming = folder / "incoming"
        self._ledger = folder / "ledger"
        self._has_warned = False
        self._is_busy = False
        """Another one held the ledger for as long as was waited for it last."""
        self._evicts_from = float("-inf")
        """On the monotonic clock."""
        for made in (self._frames, self._incoming):
            made.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def stored_bytes(self) -> int:
        """Sum of the sizes of all frames; 0 if it is not known."""
        try:
            return _sum_in(self._ledger.read_bytes()) or 0
        except OSError:
            return 0

    def has(self, key: FrameKey) -> bool:
        """Whether there is a file for this frame; only `read` tells whether it is whole."""
        try:
            return self._path(key).exists()
        except OSError:  # a folder of another user: `exists` tells "no" only of what is not there
            return False

    def read(self, key: FrameKey, into_HWC: npt.NDArray[np.uint8]) -> FrameFacts | None:
        """Copy a frame into a contiguous array; None if it is not there, and then the array may hold anything.

        A file that is no whole frame of this size is removed.
        """
        path = self._path(key)
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        header = bytearray(HEADER.size)
        try:
            num_bytes = os.preadv(file, [header, into_HWC.data], 0)
            if num_bytes == HEADER.size + into_HWC.nbytes == os.fstat(file).st_size:
                magic, width, height, index, timestamp_seconds, corrupt, checksum = HEADER.unpack(header)
                expected = (MAGIC, key.width, key.height, _checksum(key, header, into_HWC.data))
                if (magic, width, height, checksum) == expected:
                    with contextlib.suppress(OSError):  # a folder that we may only read
                        os.utime(file)
                    return FrameFacts(index, timestamp_seconds, corrupt)
        except OSError as error:
            self._warn(f"cannot read {path}: {error}")
            return None
        finally:
            os.close(file)
        self._remove(path)
        return None

    def write(self, key: FrameKey, facts: FrameFacts, pixels_HWC: npt.NDArray[np.uint8]) -> None:
        """Keep a frame, dropping others if need be.

        Nothing happens if it is there already or larger than the store, or while others drop frames.
        """
        num_bytes = HEADER.size + pixels_HWC.nbytes
        if _occupied(num_bytes) > self.capacity_bytes:
            return
        pixels = np.ascontiguousarray(pixels_HWC).data
        said = (MAGIC, key.width, key.height, facts.index, facts.timestamp_seconds, facts.corrupt)
        header = HEADER.pack(*said, _checksum(key, HEADER.pack(*said, 0), pixels))
        temporary = self._incoming / uuid.uuid4().hex
        try:
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                num_written = os.writev(file, [header, pixels])
            finally:
                os.close(file)
            if num_written == num_bytes:
                self._admit(temporary, self._path(key), _occupied(num_bytes))
            else:
                self._warn(f"cannot write into {self.folder}: no space left")
        except BlockingIOError:
            self._is_busy = True
        except OSError as error:
            self._warn(f"cannot write into {self.folder}: {error}")
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)

    def _admit(self, temporary: Path, path: Path, num_bytes: int) -> None:
        with self._balance() as balance:
            if path.exists():
                return
            if balance.stored_bytes + num_bytes > self.capacity_bytes:
                if time.monotonic() < self._evicts_from:
                    return
                balance.set(self._evict(round(self.capacity_bytes * LOW_WATER) - num_bytes))
            if balance.stored_bytes + num_bytes > self.capacity_bytes:  # what is left cannot be deleted
                self._evicts_from = time.monotonic() + STALE_SECONDS  # not for each write anew
                return
            path.parent.mkdir(exist_ok=True, mode=0o700)
            balance.set(balance.stored_bytes + num_bytes)
            temporary.rename(path)

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError), self._balance() as balance:
            num_bytes = _occupied(path.stat().st_size)
            path.unlink()
            balance.set(max(0, balance.stored_bytes - num_bytes))

    def _evict(self, target_bytes: int) -> int:
        """Drop the least recently used frames until the rest is within the target; gives the sum of the rest.

        The balance must be held.
        """
        frames: list[tuple[int, int, str]] = []
        folders = [entry.path for entry in os.scandir(self._frames)]
        for folder in folders:
            for entry in os.scandir(folder):
                status = entry.stat()
                frames.append((status.st_mtime_ns, _occupied(status.st_size), entry.path))
        stored_bytes = sum(num_bytes for _, num_bytes, _ in frames)
        for _, num_bytes, path in sorted(frames):
            if stored_bytes <= target_bytes:
                break
            with contextlib.suppress(OSError):  # it stays, and is counted; others go in its place
                os.unlink(path)
                stored_bytes -= num_bytes
        for folder in folders:
            with contextlib.suppress(OSError):  # most are not empty
                os.rmdir(folder)
        for entry in os.scandir(self._incoming):
            with contextlib.suppress(OSError):
                if time.time() - entry.stat().st_mtime > STALE_SECONDS:
                    os.unlink(entry.path)
        return stored_bytes

    @contextlib.contextmanager
    def _balance(self) -> Iterator[_Balance]:
        pauses_seconds = () if self._is_busy else LEDGER_PAUSES_SECONDS  # a request has many frames
        with locked(self._ledger, pauses_seconds) as file:
            self._is_busy = False
            stored_bytes = _sum_in(os.pread(file, LEDGER.size, 0))
            balance = _Balance(file, stored_bytes or 0)
            if stored_bytes is None:  # new, lost in a crash of the machine, or no sum, which would lift the bound
                balance.set(self._evict(self.capacity_bytes))
            yield balance

    def _path(self, key: FrameKey) -> Path:
        return self._frames / key.video / f"{key.place}-{key.width}x{key.height}"

    def _warn(self, message: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("frame cache: %s; going on without it where need be (told once per process)", message)


class _Balance:
    """The ledger while its lock is held."""

    def __init__(self, file: int, stored_bytes: int) -> None:
        self._file = file
        self.stored_bytes = stored_bytes

    def set(self, stored_bytes: int) -> None:
        self.stored_bytes = stored_bytes
        os.pwrite(self._file, LEDGER.pack(stored_bytes, _checksum_of(stored_bytes)), 0)


def _sum_in(ledger: bytes) -> int | None:
    """The sum that a ledger states; None if it is none."""
    if len(ledger) < LEDGER.size:
        return None
    stored_bytes, checksum = LEDGER.unpack_from(ledger)
    return stored_bytes if stored_bytes >= 0 and checksum == _checksum_of(stored_bytes) else None


def _checksum_of(stored_bytes: int) -> int:
    return zlib.crc32(stored_bytes.to_bytes(8, "little", signed=True))


def _checksum(key: FrameKey, header: bytes | bytearray, pixels: memoryview) -> int:
    """A frame under the name of another, or whose time was damaged, would be as wrong as one with other pixels."""
    named = zlib.crc32(f"{key.video} {key.place}".encode())
    return zlib.crc32(pixels, zlib.crc32(header[:-_CHECKSUM_BYTES], named))


def _occupied(num_bytes: int) -> int:
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES
