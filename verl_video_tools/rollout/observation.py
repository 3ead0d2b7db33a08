"""What a rollout shows its model: prompts with subtitles, frames of its videos, and what tools may read of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from verl_video_tools.core.errors import FrameRangeError, RetrievalError, UsageError, VideoError
from verl_video_tools.core.tool import load_selector
from verl_video_tools.core.types import (
    CacheUse,
    Content,
    ContextPolicy,
    FrameRecord,
    FrameRequest,
    ImagePart,
    Message,
    Method,
    PixelEnvelope,
    Sample,
    ShownFrame,
    Subtitle,
    ToolContext,
    ToolPicture,
    ToolPlan,
    VideoInfo,
    content_images,
    with_pixels,
)
from verl_video_tools.video import (
    Video,
    cache_stats,
    decode_frames,
    index_at,
    open_video,
    planned_frames,
)
from verl_video_tools.video.pictures import made_picture, planned_picture, read_picture

_SPECIAL_OPENING = re.compile(r"<\|(?=\w+\|>)", re.ASCII)


# ---------------------------------------------------------------------------------------------------------------- texts


def escape_text(text: str) -> str:
    """The text with a space in every special token that it spells (`< |im_end|>`).

    A tokenizer makes a special token of its spelling wherever that stands: in a question, or in an error that repeats
    what the policy wrote. `<|image_pad|>` would be an image that is not there, `<|im_end|>` the end of the message.
    """
    return _SPECIAL_OPENING.sub("< |", text)


def escape_special_tokens(content: Content) -> Content:
    """The content with special tokens escaped in its texts."""
    return tuple(escape_text(part) if isinstance(part, str) else part for part in content)


def escape_messages(messages: Sequence[Message]) -> list[Message]:
    """The messages with special tokens escaped in their texts."""
    return [Message(message.role, escape_special_tokens(message.content)) for message in messages]


def next_context(policy: ContextPolicy, dialogue: Sequence[Message]) -> list[Message]:
    """What the next turn of a dialogue sees; the first one sees the prompt.

    Messages of the dialogue are returned as the same objects. In the texts of others special tokens are escaped.

    Raises:
        UsageError: the policy shows an image that the dialogue does not, or returns messages in a wrong order.
    """
    if prompt_length(dialogue) == len(dialogue):
        return list(dialogue)
    return context_of(dialogue, policy(tuple(dialogue)))


def context_of(dialogue: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """The messages that a method has made of a dialogue, as `next_context` gives them.

    Raises:
        UsageError: as there.
    """
    whole = {id(message) for message in dialogue}
    images = [image for message in dialogue for image in content_images(message.content)]
    seen = [
        message
        if id(message) in whole
        else Message(message.role, with_pixels(escape_special_tokens(message.content), images))
        for message in messages
    ]
    start = prompt_length(seen)
    roles = [message.role for message in seen]
    if not start or roles[start:] != ["assistant", "user"] * ((len(seen) - start) // 2):
        raise UsageError(
            f"a context policy returned messages of {roles}; return those of a prompt (system, user), then turns "
            "(assistant), each with the user message that answers it"
        )
    return seen


def is_same_message(one: Message, other: Message) -> bool:
    """Whether a model reads the same. Pixels are those of the record, and may not be decoded yet."""

    def read(content: Content) -> list[str | FrameRecord]:
        return [part if isinstance(part, str) else part.record for part in content]

    return one is other or (one.role == other.role and read(one.content) == read(other.content))


def prompt_length(context: Sequence[Message]) -> int:
    """Number of messages before the first turn of the assistant."""
    return next((number for number, message in enumerate(context) if message.role == "assistant"), len(context))


# --------------------------------------------------------------------------------------------------------------- prompt


def prompt_messages(
    method: Method, sample: Sample, infos: Sequence[VideoInfo], images: Sequence[ImagePart]
) -> list[Message]:
    """What starts a rollout on one or several videos: the method's prompt, with the subtitles between its frames.

    Subtitles have the times of one video, so that they are left out where there are several.
    """
    if len(infos) > 1:
        return escape_messages(method.videos_prompt(sample, infos, images))
    return escape_messages(with_subtitles(method.prompt(sample, infos[0], images), sample.subtitles))


def picture_prompt_messages(method: Method, question: str, images: Sequence[ImagePart]) -> list[Message]:
    """What starts a rollout on a row without a video.

    Raises:
        UsageError: the method does not ask without a video.
    """
    return escape_messages(method.picture_prompt(question, images))


async def planned_picture_prompt(method: Method, sample: Sample, envelope: PixelEnvelope) -> list[Message]:
    """The prompt of a row without a video, with images whose sizes are final and that have no pixels yet.

    Raises:
        RowError: an image cannot be read.
        UsageError: the method does not ask without a video.
    """
    numbered = enumerate(sample.image_paths)
    planned = [await asyncio.to_thread(planned_picture, path, number, envelope) for number, path in numbered]
    return picture_prompt_messages(method, sample.question, planned)


async def decoded_picture_prompt(messages: Sequence[Message], sample: Sample, envelope: PixelEnvelope) -> list[Message]:
    """The planned messages with their pixels. Raises RowError: an image cannot be read."""
    shown = {image.record.index for message in messages for image in content_images(message.content)}
    numbered = [(number, sample.image_paths[number]) for number in sorted(shown)]
    images = [await asyncio.to_thread(read_picture, path, number, envelope) for number, path in numbered]
    return [Message(message.role, with_pixels(message.content, images)) for message in messages]


async def initial_requests(
    method: Method, sample: Sample, envelope: PixelEnvelope, context: ToolContext
) -> list[FrameRequest]:
    """The frames to show with the question: one request for each video, by the method or by its selector.

    Args:
        context: what a selector may know.

    Raises:
        RetrievalError: a selector failed, or chose what it may not.
        UsageError: the method does not ask about several videos.
    """
    if len(context.videos) > 1:
        return method.plan_videos(context.videos, sample, envelope)
    planned = method.plan_initial_frames(context.info, sample, envelope)
    if method.initial_frames_selector is None:
        return [planned]
    select = load_selector(method.initial_frames_selector)
    try:
        chosen = await select(planned, context, method.tool_deadline_seconds)
    except (RetrievalError, VideoError):
        raise
    except Exception as error:  # a user's own code: raised further, it would cost the whole group its records
        raise RetrievalError(f"{method.initial_frames_selector} failed: {error!r}") from error
    same_size = (chosen.width, chosen.height) == (planned.width, planned.height)
    if not same_size or not 0 < len(chosen) <= len(planned):
        raise RetrievalError(
            f"{method.initial_frames_selector} chose {len(chosen)} frames of {chosen.width}x{chosen.height}; it "
            f"may choose 1 to {len(planned)} of {planned.width}x{planned.height}"
        )
    return [chosen]


# ------------------------------------------------------------------------------------------------------------ subtitles


def with_subtitles(messages: Sequence[Message], subtitles: Sequence[Subtitle]) -> list[Message]:
    """The messages with the subtitles between the frames of the first one that shows any, or, where none does, before
    all else that the user says. No image moves, and no text is left out."""
    if not subtitles:
        return list(messages)
    shows = [number for number, message in enumerate(messages) if content_images(message.content)]
    user_messages = [number for number, message in enumerate(messages) if message.role == "user"]
    place = (shows or user_messages)[0]
    return [
        Message(message.role, interleaved(message.content, subtitles)) if number == place else message
        for number, message in enumerate(messages)
    ]


def interleaved(content: Content, subtitles: Sequence[Subtitle]) -> Content:
    """Texts and images with each subtitle on a line of its own, in the order of their starts.

    A subtitle stands after the frames that are shown by the middle of its time, as LongVideoBench has it, and before
    the label of the next one.
    """
    images = content_images(content)
    lines = _lines_between(images, subtitles)
    texts = _texts_between(content)
    if not images:
        return (f"{lines[0]}\n{texts[0]}",)
    if lines[0]:  # before the line that labels the first frame
        above, line_break, label = texts[0].rpartition("\n")
        texts[0] = f"{above}{line_break}{lines[0]}\n{label}"
    for number in range(1, len(texts)):
        if lines[number]:
            follows = texts[number] or number < len(images)
            line_break = "\n" if follows and not texts[number].startswith("\n") else ""
            texts[number] = f"\n{lines[number]}{line_break}{texts[number]}"
    parts: list[str | ImagePart] = [texts[0]]
    for image, text in zip(images, texts[1:], strict=True):
        parts += [image, text]
    return tuple(part for part in parts if part != "")


def _lines_between(images: Sequence[ImagePart], subtitles: Sequence[Subtitle]) -> list[str]:
    """The subtitles before the first image, and those after each."""
    lines: list[list[str]] = [[] for _ in range(len(images) + 1)]
    place = 0  # never goes back, so that they keep their order
    for subtitle in sorted(subtitles, key=lambda subtitle: subtitle.start_seconds):
        while place < len(images) and images[place].record.timestamp_seconds <= subtitle.middle_seconds:
            place += 1
        lines[place].append(subtitle.text)
    return ["\n".join(texts) for texts in lines]


def _texts_between(content: Content) -> list[str]:
    """The text before the first image, and those after each."""
    texts = [""]
    for part in content:
        if isinstance(part, str):
            texts[-1] += part
        else:
            texts.append("")
    return texts


# --------------------------------------------------------------------------------------------------------------- frames


@dataclass(eq=False)
class RolloutVideos:
    """The open videos of one rollout, which an `Episode` and the tools of its method read frames from.

    It knows neither of them: an episode that its own tools referred to would keep its videos open, and all its pixels,
    until the garbage collector's next full run.

    Attributes:
        deadline_seconds: of opening a file, and of each request.
        cache: the rollout's counts of the frame cache; grow.
        opened: the files, which requests count from 0.
    """

    deadline_seconds: float
    cache: CacheUse
    opened: list[Video] = field(default_factory=list)

    async def open(self, paths: Sequence[str]) -> None:
        """Open these files. Raises VideoError where one of them cannot be opened, or not in time."""
        self.opened = [await open_video(path, deadline_seconds=self.deadline_seconds) for path in paths]

    async def planned(self, request: FrameRequest) -> tuple[ImagePart, ...]:
        """The frames of a request without pixels. Their times are in the file's index, so labels are final but where a
        frame turns out to be damaged.

        Raises:
            VideoError: a frame or the region is outside the video.
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

    async def index_at(self, seconds: float) -> int:
        """`ToolContext.index_at`."""
        return await index_at(self.opened[0], self.deadline_seconds, seconds)

    async def times_of(self, indices: Sequence[int]) -> list[float]:
        """`ToolContext.times_of`."""
        request = FrameRequest(width=1, height=1, indices=tuple(indices))
        return [image.record.timestamp_seconds for image in await self.planned(request)]

    def _video_of(self, request: FrameRequest) -> Video:
        if not 0 <= request.video < len(self.opened):
            raise FrameRangeError(f"there is no video {request.video}: the row has {len(self.opened)}, counted from 0")
        return self.opened[request.video]


async def made_pictures(plan: ToolPlan, envelope: PixelEnvelope) -> tuple[tuple[ImagePart, ToolPicture], ...]:
    """The pictures that a tool has made, at sizes within the envelope, and their records.

    Raises:
        UsageError: one is not RGB in 8 bits.
    """
    if not plan.pictures:
        return ()
    return await asyncio.to_thread(lambda: tuple(made_picture(pixels, envelope) for pixels in plan.pictures))


def _in_video(record: FrameRecord, video: int) -> FrameRecord:
    return replace(record, video=video) if video else record


# ------------------------------------------------------------------------------------------------ what tools may know


def shown_frames(contents: Sequence[Content], turn: int) -> tuple[ShownFrame, ...]:
    """The images of messages that the model reads next: the prompt (`turn` 0), or what answers a turn."""
    records = [image.record for content in contents for image in content_images(content)]
    return tuple(
        ShownFrame(record.index, record.timestamp_seconds, turn, record.region, record.video) for record in records
    )
