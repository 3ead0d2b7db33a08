"""Frames of requests: from the caches where they are there, decoded once per node where they are not."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from verl_video_tools.core.machine import installed_version
from verl_video_tools.core.types import Box, FrameBatch, FrameRecord, FrameRequest, Region
from verl_video_tools.video.batch import BatchBuilder, BatchRow, FrameFacts
from verl_video_tools.video.file_locks import StripedLocks
from verl_video_tools.video.frame_store import FrameKey, FrameStore
from verl_video_tools.video.grids import cells_of, tiled
from verl_video_tools.video.settings import GIBIBYTE, VideoSettings
from verl_video_tools.video.shared_folder import SharedFolder, shared_memory_root
from verl_video_tools.video.source import NEVER, Deadline
from verl_video_tools.video.video import Video

logger = logging.getLogger(__name__)

MAX_PATIENCE_SECONDS = 10.0
"""How long a request waits for others who decode the same group of pictures; at most half the time it has."""
POLL_SECONDS = (0.001, 0.02)
"""First and longest pause between two looks at a busy lock."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What this process got from the caches so far, and how full the node's cache in memory is."""

    hits: int
    """Frames that came from a cache."""
    misses: int
    """Frames that had to be decoded."""
    stored_bytes: int
    capacity_bytes: int


class FrameProvider:
    """Serves requests for frames of videos. Safe for threads; several processes with the same stores share frames.

    Args:
        stores: caches, the fastest first; none means that everything is decoded.
        locks: shared by all who share the stores; whoever holds a group of pictures decodes it, the others wait.
        time_grid_seconds: times asked for move to the nearest multiple, so that requests for nearly the same time meet;
            0 leaves them alone. Requests by index never move, and a batch tells the times that it shows.
    """

    def __init__(
        self, stores: Sequence[FrameStore], locks: StripedLocks | None = None, time_grid_seconds: float = 0.0
    ) -> None:
        if stores and locks is None:
            raise ValueError("stores need locks")
        self._stores = stores
        self._locks = locks
        self._time_grid_seconds = time_grid_seconds
        self._stats_lock = threading.Lock()
        self._num_hits = 0
        self._num_misses = 0

    def provide(
        self,
        video: Video,
        requests: Sequence[FrameRequest],
        deadline: Deadline = NEVER,
        prefetch: Sequence[FrameRequest] = (),
    ) -> list[FrameBatch]:
        """One batch per request, as `Video.decode_many` gives them.

        Args:
            prefetch: what others are about to ask of this video. Where a group of pictures has to be decoded, their
                frames of it are decoded along and kept in the caches. Without caches they are not looked at.

        Raises:
            FrameRangeError, UnreadableVideoError, DeadlineError: see `Video.frames_at`.
        """
        cells, prefetch = (
            [self._on_grid(cells_of(request), video.info.duration_seconds) for request in asked]
            for asked in (requests, prefetch)
        )
        if self._locks is None or not self._stores:
            batches = video.decode_many(cells, deadline)
        else:
            batches = _Collection(video, cells, prefetch, self._stores, self._locks, deadline).collect()
        num_hits = sum(batch.num_cached for batch in batches)
        with self._stats_lock:
            self._num_hits += num_hits
            self._num_misses += sum(map(len, batches)) - num_hits
        return [tiled(batch, request) for batch, request in zip(batches, requests, strict=True)]

    def planned(self, video: Video, request: FrameRequest, deadline: Deadline = NEVER) -> list[FrameRecord]:
        """What the frames of a request are, before they are decoded; see `Video.planned`."""
        return video.planned(self._on_grid(request, video.info.duration_seconds), deadline)

    def stats(self) -> CacheStats:
        memory = self._stores[0] if self._stores else None
        with self._stats_lock:
            return CacheStats(
                hits=self._num_hits,
                misses=self._num_misses,
                stored_bytes=memory.stored_bytes if memory else 0,
                capacity_bytes=memory.capacity_bytes if memory else 0,
            )

    def _on_grid(self, request: FrameRequest, duration_seconds: float) -> FrameRequest:
        if not self._time_grid_seconds or request.seconds is None:
            return request
        step = self._time_grid_seconds
        return dataclasses.replace(
            request,
            seconds=tuple(
                # A time outside the video stays outside, to be refused as such.
                min(math.floor(seconds / step + 0.5) * step, duration_seconds)
                if 0 <= seconds <= duration_seconds
                else seconds
                for seconds in request.seconds
            ),
        )


class _Collection:
    """The frames of some requests for one video, on their way into batches."""

    def __init__(
        self,
        video: Video,
        requests: Sequence[FrameRequest],
        prefetch: Sequence[FrameRequest],
        stores: Sequence[FrameStore],
        locks: StripedLocks,
        deadline: Deadline,
    ) -> None:
        self._video = video
        self._stores = stores
        self._locks = locks
        self._deadline = deadline
        # Backends differ in a pixel's last bits; without a table that is wrong the same index may mean another frame.
        decoder = f"{video.backend}{'' if video.trusts_table else '-packets'}"
        self._digest = f"{video.identity.digest}-{decoder}-{decoder_version()}"
        self._builders: list[BatchBuilder] = []
        self._rows: dict[FrameKey, list[BatchRow]] = defaultdict(list)
        """Where each frame was asked for."""
        for request in requests:
            keys = self._keys(request)
            builder = BatchBuilder(len(keys), request.height, request.width, video.region_of(request))
            self._builders.append(builder)
            for row, key in enumerate(keys):
                self._rows[key].append((builder, row))
        self._prefetch = prefetch
        self._prefetch_keys: dict[int, list[FrameKey]] = defaultdict(list)
        """Group of pictures -> frames that others are about to ask for."""

    def collect(self) -> list[FrameBatch]:
        missing = [key for key in self._rows if not self._load(key)]
        groups = self._by_group(missing)
        if groups:
            keys = {key: None for request in self._prefetch for key in self._keys(request)}
            self._prefetch_keys = self._by_group([key for key in keys if key not in self._rows])
        self._collect_groups(groups)
        return [builder.build() for builder in self._builders]

    def _keys(self, request: FrameRequest) -> list[FrameKey]:
        region = self._video.region_of(request) or ()
        indices = self._video.indices_of(request, self._deadline)
        return [FrameKey(self._digest, index, request.width, request.height, region) for index in indices]

    def _by_group(self, keys: Sequence[FrameKey]) -> dict[int, list[FrameKey]]:
        numbers = self._video.groups_of([key.index for key in keys], self._deadline)
        groups: dict[int, list[FrameKey]] = defaultdict(list)
        for number, key in sorted(zip(numbers, keys, strict=True)):
            groups[number].append(key)
        return groups

    def _collect_groups(self, groups: dict[int, list[FrameKey]]) -> None:
        """Take whatever group is free, one at a time: nobody waits with a lock in hand, and requests share the work."""
        left_seconds = self._deadline.left_seconds()
        patience = Deadline(
            MAX_PATIENCE_SECONDS if left_seconds is None else min(MAX_PATIENCE_SECONDS, left_seconds / 2), "lock"
        )
        pause_seconds, longest_pause_seconds = POLL_SECONDS
        while groups:
            is_patient = bool(patience.left_seconds())
            num_before = len(groups)
            for number in list(groups):
                with self._locks.try_hold(f"{self._digest}/{number}") as held:
                    # A reader that hangs elsewhere may hold a lock for ever; then the group is decoded twice.
                    if held or not is_patient:
                        self._collect_group(groups.pop(number), self._prefetch_keys.get(number, ()))
            if len(groups) == num_before:
                self._deadline.check()
                time.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, longest_pause_seconds)

    def _collect_group(self, keys: Sequence[FrameKey], prefetch_keys: Sequence[FrameKey]) -> None:
        wanted = [key for key in keys if not self._load(key)]  # whoever held the lock before may have decoded it
        if wanted:
            wanted += [key for key in prefetch_keys if not any(store.has(key) for store in self._stores)]
        by_view: dict[tuple[int, int, tuple[int, ...]], list[FrameKey]] = defaultdict(list)
        for key in wanted:
            by_view[key.width, key.height, key.region].append(key)
        requests = [
            FrameRequest(
                width,
                height,
                indices=tuple(key.index for key in members),
                region=Region(Box(*region)) if region else None,
            )
            for (width, height, region), members in by_view.items()
        ]
        batches = self._video.decode_many(requests, self._deadline) if requests else []
        for batch, members in zip(batches, by_view.values(), strict=True):
            for row, (key, index) in enumerate(zip(members, batch.indices.tolist(), strict=True)):
                facts = FrameFacts(index, float(batch.timestamps_seconds[row]), bool(batch.corrupt[row]))
                for store in self._stores:
                    store.write(key, facts, batch.frames_THWC[row])
                for builder, own_row in self._rows.get(key, ()):
                    builder.put(own_row, batch.frames_THWC[row], facts)

    def _load(self, key: FrameKey) -> bool:
        """Take a frame from the first store that has it, straight into its first row."""
        (first, first_row), *others = self._rows[key]
        pixels_HWC = first.frames_THWC[first_row]
        for level, store in enumerate(self._stores):
            facts = store.read(key, pixels_HWC)
            if facts is None:
                continue
            for faster in self._stores[:level]:
                faster.write(key, facts, pixels_HWC)
            first.label(first_row, facts, cached=True)
            for builder, row in others:
                builder.put(row, pixels_HWC, facts, cached=True)
            return True
        return False


@cache
def decoder_version() -> str:
    """8 hexadecimal digits for the versions of this package and of the decoders: a cache on disk outlives them."""
    names = ("verl-video-tools", "av", "decord", "torchcodec")
    return f"{zlib.crc32(repr([installed_version(name) for name in names]).encode()):08x}"


def default_capacity_bytes(root: Path) -> int:
    """A quarter of the file system, 4 GiB at most; the same for all processes of a node, unlike what is free."""
    status = os.statvfs(root)
    return min(4 * GIBIBYTE, status.f_frsize * status.f_blocks // 4)


def open_provider(settings: VideoSettings) -> FrameProvider:
    """The provider that settings ask for. A cache that cannot be had is reported and done without."""
    root = shared_memory_root()
    capacity_bytes = default_capacity_bytes(root) if settings.cache_bytes is None else settings.cache_bytes
    stores: list[FrameStore] = []
    locks = None
    if settings.disk_folder is not None:
        try:
            locks = StripedLocks(settings.disk_folder / "locks")
            stores = [FrameStore(settings.disk_folder, settings.disk_bytes)]
        except OSError as error:
            logger.warning("frame cache on disk: %s; going on without it", error)
    if capacity_bytes:
        try:
            # Never left: the share lasts as long as the process, which any thread may still use it in.
            shared = SharedFolder(root / f"vvt-frames-{os.getuid()}-{settings.cache_name}")
            memory = FrameStore(shared.path, capacity_bytes)
            locks = StripedLocks(shared.path / "locks")
            stores = [memory, *stores]
        except OSError as error:
            logger.warning("frame cache in memory: %s; going on without it", error)
    return FrameProvider(stores if locks else (), locks, settings.time_grid_seconds)
