"""The open videos of one rollout, and the frames that are read from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from verl_video_tools.core.errors import FrameRangeError
from verl_video_tools.core.types import CacheUse, FrameRecord, FrameRequest, ImagePart, VideoInfo
from verl_video_tools.video import Video, cache_stats, decode_frames, open_video, planned_frames


@dataclass(eq=False)
class RolloutVideos:
    """What an `Episode` and the tools of its method read frames from.

    It knows neither of them: an episode that its own tools referred to would keep its videos open, and all its pixels,
    until the garbage collector's next full run.

    Attributes:
        deadline_seconds: of opening a file, and of each request.
        cache: the rollout's counts of the frame cache; grow.
    """

    deadline_seconds: float
    cache: CacheUse
    _videos: list[Video] = field(default_factory=list, init=False)

    async def open(self, paths: Sequence[str]) -> None:
        """Open these files, which requests count from 0.

        Raises:
            VideoError: one of them cannot be opened, or not in time.
        """
        self._videos = [await open_video(path, deadline_seconds=self.deadline_seconds) for path in paths]

    @property
    def info(self) -> VideoInfo | None:
        """Of the first video; None where none is open."""
        return self._videos[0].info if self._videos else None

    @property
    def opened(self) -> Sequence[Video]:
        """Those that are open, at least one.

        Raises:
            RuntimeError: there is none.
        """
        if not self._videos:
            raise RuntimeError("Episode.start() must come before step()")
        return self._videos

    async def planned(self, request: FrameRequest) -> tuple[ImagePart, ...]:
        """The frames of a request without pixels. Their times are in the file's index, so labels are final but where a
        frame turns out to be damaged.

        Raises:
            VideoError: they cannot be told, or not in time.
        """
        records = await planned_frames(self._video_of(request), request, self.deadline_seconds)
        return tuple(ImagePart(_in_video(record, request.video)) for record in records)

    async def decode(self, request: FrameRequest, prefetch: Sequence[FrameRequest] = ()) -> tuple[ImagePart, ...]:
        """The frames of a request; `prefetch` is what the rollout's siblings are about to ask for.

        Raises:
            VideoError: they cannot be decoded, or not in time.
        """
        video = self._video_of(request)
        batch = await decode_frames(video, request, deadline_seconds=self.deadline_seconds, prefetch=prefetch)
        self.cache.hits += batch.num_cached
        self.cache.misses += len(batch) - batch.num_cached
        self.cache.stored_bytes = cache_stats().stored_bytes
        records = [_in_video(record, request.video) for record in batch.records()]
        return tuple(map(ImagePart, records, batch.frames_THWC))

    def _video_of(self, request: FrameRequest) -> Video:
        videos = self.opened
        if not 0 <= request.video < len(videos):
            raise FrameRangeError(f"there is no video {request.video}: the row has {len(videos)}, counted from 0")
        return videos[request.video]


def _in_video(record: FrameRecord, video: int) -> FrameRecord:
    return replace(record, video=video) if video else record
