"""Subtitles of a video, and their places between its frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verl_video_tools.core.messages import Content, ImagePart, Message, content_images


@dataclass(frozen=True, slots=True)
class Subtitle:
    """One caption; times in seconds of the video."""

    start_seconds: float
    end_seconds: float
    text: str

    @property
    def middle_seconds(self) -> float:
        return (self.start_seconds + self.end_seconds) / 2

    def to_row(self) -> dict[str, Any]:
        """As `extra_info.subtitles` of a row holds it; `from_row` is the inverse."""
        return asdict(self)

    @classmethod
    def from_row(cls, given: Mapping[str, Any]) -> Subtitle:
        """Read one.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        return cls(float(given["start_seconds"]), float(given["end_seconds"]), str(given["text"]))


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
