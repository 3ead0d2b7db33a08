"""Frames of a message: which ones of a video, at which size, and how they stand there with their labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from verl_video_tools.core.errors import RetrievalError
from verl_video_tools.core.prompts import Template, load_prompt, render
from verl_video_tools.core.types import (
    BoxUnit,
    Content,
    FrameRecord,
    FrameRequest,
    ImagePart,
    Message,
    Method,
    PixelEnvelope,
    ToolContext,
    ToolOutcome,
    VideoInfo,
)
from verl_video_tools.methods.toolkit.calls import format_box
from verl_video_tools.video.resize import fit_envelope
from verl_video_tools.video.sampling import fps_seconds, linspace_indices, not_before, uniform_seconds

PATCH_FACTOR = 28
"""Sides are multiples of this many pixels if no processor says otherwise (Qwen2.5-VL: patches of 14, merged 2x2)."""


def frame_size(info: VideoInfo, min_pixels: int, max_pixels: int, envelope: PixelEnvelope) -> tuple[int, int]:
    """Width and height of shown frames in pixels: multiples of the model's factor, area within all bounds."""
    return fit_envelope(info.width, info.height, pixel_bounds(min_pixels, max_pixels, envelope))


def pixel_bounds(min_pixels: int, max_pixels: int, envelope: PixelEnvelope) -> PixelEnvelope:
    """A tool's own bounds on the area of a picture, within those of the model. If the two contradict each other, the
    model's bounds count.

    There is always a size within the bounds, because both have room for a whole number of the model's cells.
    """
    factor = PATCH_FACTOR if envelope.factor == 1 else envelope.factor
    cell = factor**2
    largest = max(min(max_pixels, envelope.max_pixels), math.ceil(envelope.min_pixels / cell) * cell)
    smallest = min(max(min_pixels, envelope.min_pixels), largest // cell * cell)
    return PixelEnvelope(factor, smallest, largest)


def spread_frames(info: VideoInfo, num_frames: int, size: tuple[int, int]) -> FrameRequest:
    """A request for frames spread evenly from the first frame of the video to the last; for all frames of a shorter
    video.

    Args:
        size: width and height in pixels.
    """
    return FrameRequest(*size, indices=linspace_indices(0, info.num_frames - 1, num_frames))


def rate_frames(info: VideoInfo, fps: float, max_frames: int, size: tuple[int, int]) -> FrameRequest:
    """A request for the frames shown every `1 / fps` seconds, from the first frame on. If these are more than
    `max_frames`, it is for `max_frames` frames spread evenly from the first frame of the video to the last. Each frame
    comes once.

    Args:
        fps: frames per second.
        size: width and height in pixels.
    """
    if info.duration_seconds * fps - 1e-9 > max_frames:
        seconds = uniform_seconds(0.0, info.last_seconds, max_frames)
    else:
        seconds = fps_seconds(0.0, info.duration_seconds, fps, max_frames)
    return FrameRequest(*size, seconds=not_before(seconds, info.duration_seconds), unique=True)


NUM_CANDIDATES = 256
"""Number of frames, spread over the video, that `most_similar` compares with the question."""


async def most_similar(request: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
    """The frames that are most similar to the question, in order of time; as many as the method would show.

    Raises:
        RetrievalError: the run has no retriever (docs/retrieval.md), or the retriever gave no answer.
    """
    if context.retriever is None:
        raise RetrievalError("the selector most_similar needs a retriever, and the run has none")
    last = context.info.num_frames - 1
    candidates = linspace_indices(0, last, max(NUM_CANDIDATES, len(request)))
    best = await context.retriever.best_frames(
        context.sample.video_path, candidates, context.sample.question, len(request), deadline_seconds
    )
    return replace(request, seconds=None, indices=tuple(sorted(best)))


# ------------------------------------------------------------------------------------------------------------- messages


def initial_messages(method: Method, package: str, user: Content, **values: object) -> list[Message]:
    """The messages that start a rollout: the system message and the user's message.

    Args:
        package: package with the method's `prompt.txt`, which the field `prompt_file` replaces.
        values: value of each ``{name}`` in the prompt.
    """
    system = load_prompt(package, "prompt.txt", method.prompt_file, **values)
    return [Message("system", (system,)), Message("user", user)]


def joined(parts: Iterable[Content], separator: Content = ()) -> Content:
    """The parts in their order, with the separator between them."""
    content: list[str | ImagePart] = []
    for number, part in enumerate(parts):
        content += [*(separator if number else ()), *part]
    return tuple(content)


NUMBER_AND_TIME = "frame {frame.index} ({frame.timestamp_seconds:.2f} s)"
"""Label of a frame in verl's own tool loop, for tools that take frame numbers (`ToolDescription.frame_label`)."""


FRAME_TEMPLATES: Mapping[str, Template] = {
    "frame": Template("frame {index}: {image}", once=("index", "image")),
    "between_frames": Template("\n"),
}
"""Templates that `message_templates` of a method needs for `numbered_frames`."""


def frame_lines(images: Sequence[ImagePart], label: Callable[[float], str]) -> Content:
    """Content with each frame after its label, on a line of its own.

    Args:
        label: makes the text of a label from the time of the frame.
    """
    labels = [label(image.record.timestamp_seconds) for image in images]
    return joined((f"\n{text}" if number else text, images[number]) for number, text in enumerate(labels))


def numbered_frames(method: Method, images: Sequence[ImagePart]) -> Content:
    """Content with each frame after its number, and the separator between frames."""
    frames = [render(method, "frame", index=str(image.record.index), image=(image,)) for image in images]
    return joined(frames, render(method, "between_frames"))


def picture_label(record: FrameRecord, info: VideoInfo, unit: BoxUnit = "pixels") -> str:
    """``12.00 s``, or ``12.00 s, part [0.25, 0, 0.5, 1]`` for a part of a frame.

    Args:
        unit: unit of the box, the same one in which the model writes boxes.
    """
    label = f"{record.timestamp_seconds:.2f} s"
    if record.region is not None:
        label += f", part {format_box(record.region.in_unit(unit, info.width, info.height))}"
    return label


def with_text(outcome: ToolOutcome, frames: Content) -> Content:
    """The text of a call, the pictures that its tool has made, a line for each, then its frames as the method labels
    them. For a call with frames alone, the frames as they are.

    A method's `observe` passes what it shows of each call through this function, so that it can show the result of any
    tool.
    """
    text = outcome.record.text
    if outcome.pictures:
        parts: list[Content] = [(picture,) for picture in outcome.pictures]
        frames = joined([*parts, frames] if frames else parts, ("\n",))
    if text is None:
        return frames
    return (f"{text}\n", *frames) if frames else (text,)
