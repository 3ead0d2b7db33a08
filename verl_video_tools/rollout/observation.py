"""What a rollout shows its model, and what its tools may know: frames, prompts, history, context of a call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from verl_video_tools.core.errors import FrameRangeError, RetrievalError, VideoError
from verl_video_tools.core.tool import load_selector
from verl_video_tools.core.types import (
    CacheUse,
    CallRecord,
    Content,
    ContextPolicy,
    FrameRecord,
    FrameRequest,
    ImagePart,
    Message,
    Method,
    PastCall,
    PastTurn,
    PixelEnvelope,
    Retriever,
    Sample,
    ShownFrame,
    Subtitle,
    ToolContext,
    ToolModel,
    Turn,
    VideoInfo,
    content_images,
    with_pixels,
)
from verl_video_tools.services.retrieval import RecordingRetriever
from verl_video_tools.services.tool_model import RecordingToolModel, Spent
from verl_video_tools.video import (
    Video,
    cache_stats,
    decode_frames,
    index_at,
    open_video,
    planned_frames,
)
from verl_video_tools.video.pictures import planned_picture, read_picture

_SPECIAL_OPENING = re.compile(r"<\|(?=\w+\|>)", re.ASCII)

DROPPED_MARK = "[dropped]"
"""Stands where an image was shown to an earlier turn, so that its label does not seem to belong to what follows."""


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


def visible_messages(policy: ContextPolicy, messages: Sequence[Message]) -> list[Message]:
    """The messages so far as the next turn sees them; one that loses nothing is returned as the same object.

    A context policy drops images. Texts stay under every policy: system prompt, question, assistant turns, labels and
    facts of observations.

    The last observation is the last message that shows images: after a refused call, or one that is answered in words
    alone, a policy still sees the evidence before it. The initial frames are in the first one.
    """
    if policy == "append":
        return list(messages)
    showing = [number for number, message in enumerate(messages) if content_images(message.content)]
    kept = {*showing[-1:], *(showing[:1] if policy == "initial_plus_last" else ())}
    return [
        _without_images(message) if number in showing and number not in kept else message
        for number, message in enumerate(messages)
    ]


def _without_images(message: Message) -> Message:
    return Message(message.role, tuple(part if isinstance(part, str) else DROPPED_MARK for part in message.content))


# --------------------------------------------------------------------------------------------------------------- prompt


def prompt_messages(
    method: Method, sample: Sample, infos: Sequence[VideoInfo], images: Sequence[ImagePart]
) -> list[Message]:
    """What starts a rollout on one or several videos: the method's prompt, with the subtitles between its frames.

    Subtitles have the times of one video, so that they are left out where there are several.
    """
    if len(infos) > 1:
        return escape_messages(method.videos_prompt(sample, infos, images))
    return escape_messages(with_subtitles(method.prompt(sample, infos[0], images), method.prompt_subtitles(sample)))


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
    method: Method, sample: Sample, envelope: PixelEnvelope, contexts: ToolContexts
) -> list[FrameRequest]:
    """The frames to show with the question: one request for each video, by the method or by its selector.

    Raises:
        RetrievalError: a selector failed, or chose what it may not.
        UsageError: the method does not ask about several videos.
    """
    videos = contexts.videos.opened
    if len(videos) > 1:
        return method.plan_videos([video.info for video in videos], sample, envelope)
    planned = method.plan_initial_frames(videos[0].info, sample, envelope)
    if method.initial_frames_selector is None:
        return [planned]
    select = load_selector(method.initial_frames_selector)
    try:
        chosen = await select(planned, contexts.of_selector(), method.tool_deadline_seconds)
    except (RetrievalError, VideoError):
        raise
    except Exception as error:  # a user's own code: raised further, it would cost the whole group its records
        raise RetrievalError(f"{method.initial_frames_selector} failed: {error!r}") from error
    same_form = (chosen.width, chosen.height, chosen.grid) == (planned.width, planned.height, planned.grid)
    if not same_form or not 0 < chosen.num_frames <= planned.num_frames:
        raise RetrievalError(
            f"{method.initial_frames_selector} chose {chosen.num_frames} frames of {chosen.width}x{chosen.height}; it "
            f"may choose 1 to {planned.num_frames} of {planned.width}x{planned.height}"
            f"{'' if chosen.grid == planned.grid else ', in the same grid'}"
        )
    return [chosen]


# ------------------------------------------------------------------------------------------------------------ subtitles


def with_subtitles(messages: Sequence[Message], subtitles: Sequence[Subtitle]) -> list[Message]:
    """The messages with the subtitles between the frames of the first one that shows any, or, where none does, before
    all else that the user says. No image moves, and no text is left out."""
    if not subtitles:
        return list(messages)
    shows = [number for number, message in enumerate(messages) if content_images(message.content)]
    asks = [number for number, message in enumerate(messages) if message.role == "user"]
    place = (shows or asks)[0]
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


# ------------------------------------------------------------------------------------------------ what tools may know


def labelled_images(content: Content) -> Iterator[tuple[str, Any]]:
    """Each image of a content after its label: the words before it on its line, back to the image before it."""
    before = ""
    for part in content:
        if isinstance(part, str):
            before = (before + part).rpartition("\n")[2]
        else:
            yield before.strip(), part
            before = ""


class History:
    """What one rollout has shown and said. A message is read once, when it is final; no pixels are kept.

    Images stay in it though a context policy drops them from later turns: they were shown.
    """

    def __init__(self) -> None:
        self.shown: tuple[ShownFrame, ...] = ()
        self.turns: tuple[PastTurn, ...] = ()

    def show(self, contents: Sequence[Content]) -> None:
        """Messages that the model reads next: the prompt, or the observation that answers the last turn."""
        images = [(label, image.record) for content in contents for label, image in labelled_images(content)]
        self.shown += tuple(
            ShownFrame(
                *(position, frame.index, frame.timestamp_seconds, label, len(self.turns)),
                *(frame.region, frame.tiles, frame.video),
            )
            for position, (label, frame) in enumerate(images, start=len(self.shown))
        )

    def start_turn(self, text: str) -> None:
        """The assistant's turn, whose calls are planned next."""
        self.turns += (PastTurn(text),)

    def finish_turn(self, turn: Turn) -> None:
        """The last turn's calls are answered: its records are final."""
        self.turns = (*self.turns[:-1], PastTurn(turn.text, tuple(map(PastCall.of, turn.calls))))


@dataclass(eq=False)
class ToolContexts:
    """Makes the context of each call: what a tool may know and ask, with its requests noted in the rollout's record.

    Attributes:
        selected_frames: what the retriever answers to a selector is appended.
        history: of the rollout; grows.
    """

    sample: Sample
    envelope: PixelEnvelope
    videos: RolloutVideos
    selected_frames: list[list[int]]
    retriever: Retriever | None = None
    tool_model: ToolModel | None = None
    history: History = field(default_factory=History)
    _spent: Spent = field(default_factory=Spent)

    def of_call(self, record: CallRecord) -> ToolContext:
        """For the tool that plans a call; what it asks is noted in the call's record."""
        model = (
            None if self.tool_model is None else RecordingToolModel(self.tool_model, self._spent, record.model_calls)
        )
        return self._context(record.retrieved_frames, model)

    def of_selector(self) -> ToolContext:
        """For the selector of the initial frames. It may ask no model: its record has no place for that."""
        return self._context(self.selected_frames, None)

    def _context(self, answers: list[list[int]], model: ToolModel | None) -> ToolContext:
        videos, deadline_seconds = self.videos.opened, self.videos.deadline_seconds
        return ToolContext(
            videos[0].info,
            self.sample,
            self.envelope,
            partial(index_at, videos[0], deadline_seconds),
            None if self.retriever is None else RecordingRetriever(self.retriever, answers),
            shown=self.history.shown,
            turns=self.history.turns,
            videos=tuple(video.info for video in videos),
            look=self.videos.decode,
            model=model,
            times_of=partial(_times_of, videos[0], deadline_seconds),
        )


async def _times_of(video: Video, deadline_seconds: float, indices: Sequence[int]) -> list[float]:
    request = FrameRequest(width=1, height=1, indices=tuple(indices))
    return [record.timestamp_seconds for record in await planned_frames(video, request, deadline_seconds)]
