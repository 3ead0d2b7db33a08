"""A row of the data set: its question, videos or clips of them, images, subtitles and truth."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, cast, get_args

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.numbers import canonical_number, estimate, values_of
from verl_video_tools.core.truths import (
    QuestionType,
    canonical_letter,
    canonical_truth,
    default_question_type,
    segment_of,
)


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
    def from_row(cls, value: Mapping[str, Any]) -> Subtitle:
        """Read one.

        Raises:
            KeyError, TypeError, ValueError: it is not a caption.
        """
        return cls(float(value["start_seconds"]), float(value["end_seconds"]), str(value["text"]))


@dataclass(frozen=True)
class Sample:
    """One row of the data set for loops and rewards (columns: `docs/rows.md`).

    `question` is the whole question with its options; `subtitles` are shown between the initial frames. `ground_truth`
    is in the form that graders compare (`core.truths`), such as the letter of an option.
    """

    question: str
    ground_truth: str
    video_path: str
    question_type: QuestionType
    options: tuple[str, ...] = ()
    video_segment_seconds: tuple[float, float] | None = None
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    subtitles: tuple[Subtitle, ...] = ()
    image_paths: tuple[str, ...] = ()
    """Images instead of a video, in order; `video_path` is then empty, as in a row with neither."""

    more_video_paths: tuple[str, ...] = ()
    """The videos after `video_path` in a row with several."""

    @property
    def videos(self) -> tuple[str, ...]:
        """Paths of all videos, in order."""
        return (self.video_path, *self.more_video_paths) if self.video_path else ()

    @property
    def media(self) -> str:
        """The first video or image, which distinguishes equal questions; empty for a text alone."""
        return self.video_path or next(iter(self.image_paths), "")

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Sample:
        """Read a row in verl's form for agent loops and reward managers. All code reads rows by this function, so that
        a truth has one form.

        Raises:
            RowError: a required field is missing or empty, or a field has an invalid value; names the field and the
                row's index.
        """
        extra_info = _entries(row, "extra_info", "row index=? split=?")
        where = row_name(extra_info)
        question, video_path, question_type = (
            _text(extra_info, name, where) for name in ("question", "video_path", "question_type")
        )
        several = _paths(extra_info, "video_paths", where)
        if several and video_path:
            raise RowError(f"{where}: extra_info names both video_path and video_paths; keep one")
        video_path, *more = several or (video_path,)
        image_paths, visuals = _paths(extra_info, "image_paths", where), _text(extra_info, "visuals", where)
        has_visuals = bool(image_paths) or visuals == "none"
        for name, text in (("question", question), ("video_path", video_path)):
            if not text and not (name == "video_path" and has_visuals):
                raise RowError(f"{where}: extra_info.{name} is missing or empty; `vvt data validate` checks rows")
        named = [bool(video_path), bool(image_paths), visuals == "none"]
        if visuals not in ("", "none") or sum(named) > 1:
            raise RowError(
                f"{where}: a row has a video (video_path) or several (video_paths), or images (image_paths), or says "
                f"visuals='none', and no two of these; got visuals={visuals!r:.80}, {bool(video_path):d} video and "
                f"{len(image_paths)} images"
            )
        truth = _entries(row, "reward_model", where).get("ground_truth")
        if truth is None:
            raise RowError(f"{where}: reward_model.ground_truth is missing")
        truth = str(truth)
        try:
            options = _options(extra_info.get("options"))
            segment = _segment(extra_info.get("video_segment"))
            subtitles = _subtitles(extra_info.get("subtitles"))
        except ValueError as error:
            raise RowError(f"{where}: {error}") from error
        kind = cast(QuestionType, question_type or default_question_type(truth, options))
        if kind not in get_args(QuestionType):
            raise RowError(
                f"{where}: extra_info.question_type must be one of {', '.join(get_args(QuestionType))}, got {kind!r}"
            )
        return cls(
            question=question,
            ground_truth=canonical_truth(truth, kind, options),
            video_path=video_path,
            question_type=kind,
            options=options,
            video_segment_seconds=segment,
            extra_info=extra_info,
            subtitles=subtitles,
            image_paths=image_paths,
            more_video_paths=tuple(more),
        )


def check_question(sample: Sample, judge: object | None) -> None:
    """Check that an answer to the question can be graded.

    Args:
        judge: the judge or its configuration.

    Raises:
        UsageError: an open question without a judge, a numeric question or estimate whose truth is not a number, a
            question of type segment whose truth is not a segment, or a multiple-choice question whose truth is not an
            option.
    """
    truth = sample.ground_truth
    match sample.question_type:
        case "open" if judge is None:
            raise UsageError(
                f"an open question (truth {truth!r}) needs a judge and none is configured; "
                "configure one (video_tools.judge.base_url of a run, --judge-base-url of commands), or give a "
                "multiple-choice or numeric question"
            )
        case "numeric" if canonical_number(truth) is None and len(values_of(truth) or ()) != 1:
            raise UsageError(
                f"the truth of a numeric question must be a number, got {truth!r}; "
                "make the question open and configure a judge"
            )
        case "regression" if estimate(truth) is None:
            raise UsageError(
                f"the truth of an estimate must be a number, got {truth!r}; "
                "make the question open and configure a judge"
            )
        case "segment" if segment_of(truth) is None:
            raise UsageError(f"the truth of a question of type segment must be [start, end] in seconds, got {truth!r}")
        case "mc" if canonical_letter(truth, sample.options or None) is None:
            raise UsageError(
                f"the truth of a multiple-choice question must be the letter or the text of an option, got "
                f"{truth!r} for options {list(sample.options)!r:.300}"
            )


def row_name(extra_info: Mapping[str, Any]) -> str:
    """How messages name a row."""
    return f"row index={extra_info.get('index', '?')} split={extra_info.get('split', '?')}"


def _entries(row: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """A column of named entries; empty if it is missing. Raises RowError for other values, such as their JSON."""
    value = row.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RowError(f"{where}: {name} must hold named entries, got {value!r:.200}")
    return value


def _text(extra_info: Mapping[str, Any], name: str, where: str) -> str:
    """A text; empty if it is missing. Raises RowError for other values, such as a list of texts."""
    value = extra_info.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RowError(f"{where}: extra_info.{name} must be a text, got {value!r:.200}")
    return value


def all_media_of(extra_info: Mapping[str, Any]) -> tuple[str, ...]:
    """The videos, or else the images, of a row that may be invalid otherwise; () without any."""
    for name in ("video_path", "video_paths", "image_paths"):
        value = extra_info.get(name)
        if isinstance(value, str) and value:
            return (value,)
        if value is not None and not isinstance(value, str) and len(value):
            return tuple(map(str, value))
    return ()


def media_of(extra_info: Mapping[str, Any]) -> str | None:
    """`Sample.media` of a row that may be invalid otherwise; None without any."""
    return next(iter(all_media_of(extra_info)), None)


def _paths(extra_info: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    value = extra_info.get(name)
    if value is None:
        return ()
    is_list = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    paths = tuple(value) if is_list else ()
    if not is_list or not all(isinstance(path, str) and path for path in paths):
        raise RowError(f"{where}: extra_info.{name} must be a list of paths, got {value!r:.200}")
    return paths


def _options(value: Any) -> tuple[str, ...]:
    """The options, from a list of texts or from its JSON."""
    if value is None:
        return ()
    try:
        texts = json.loads(value) if isinstance(value, str) else value
    except (json.JSONDecodeError, RecursionError):
        texts = value
    if isinstance(texts, str | Mapping) or not isinstance(texts, Iterable):
        raise ValueError(f"extra_info.options must be a list of texts, or the JSON of one, got {value!r:.200}")
    return tuple(str(text) for text in texts)


def _segment(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    try:
        start, end = value
        return float(start), float(end)
    except (TypeError, ValueError):
        raise ValueError(
            f"extra_info.video_segment must be [start, end] in seconds, or be left out, got {value!r:.200}"
        ) from None


def _subtitles(value: Any) -> tuple[Subtitle, ...]:
    try:
        return tuple(Subtitle.from_row(subtitle) for subtitle in (() if value is None else value))
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            "extra_info.subtitles must list objects with start_seconds, end_seconds and text, or be left out, got "
            f"{value!r:.200}"
        ) from None


# ---------------------------------------------------------------------------------------------------------------- clips
# A clip is a media fragment (W3C Media Fragments URI 1.0): `video.mp4#t=5,10` is `video.mp4` from second 5 to second
# 10. `kitchen#fps=2` is the folder `kitchen` of image files, shown two a second, and `kitchen#fps=2&t=5,10` a part of
# it. Each may replace the path of a video everywhere, so that rows, records, caches and viewers need no code for them.
# `video.Video` opens it.
_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_FRAGMENT = re.compile(rf"(?s)(.*)#(?:fps=({_NUMBER})|(?:fps=({_NUMBER})&)?t=({_NUMBER}),({_NUMBER}))")


class Clip(NamedTuple):
    """A file and a part of it."""

    file: str
    """Of a video of image files: their folder, or the JSON file that lists them."""
    seconds: tuple[float, float] | None
    """Start and end, relative to the file's first frame: the frames that begin in [start, end). None: the whole
    file."""
    fps: str | None = None
    """Images a second, of a folder of images, as the path has it; None for a file."""

    def why_missing(self, what: str = "video file") -> str | None:
        """What is wrong if nothing is at the path; None if there is a file, or a folder of images with a rate.

        Args:
            what: how a message names what is missing.
        """
        if self.fps is None and os.path.isdir(self.file):
            return f"{self.file} is a folder, no video file; a folder of frames needs its rate: {self.file}#fps=2"
        is_there = os.path.isfile(self.file) if self.fps is None else os.path.isdir(self.file)
        return None if is_there else f"no such {what}: {self.file}"


def clip_path(file: str | os.PathLike[str], start_seconds: float, end_seconds: float) -> str:
    """The path of a clip, with times in milliseconds.

    Raises:
        ValueError: it does not begin before it ends.
    """
    if not 0 <= start_seconds < end_seconds:
        raise ValueError(f"a clip takes 0 <= start < end in seconds, got {start_seconds} and {end_seconds}")
    times = (f"{seconds:.3f}".rstrip("0").rstrip(".") for seconds in (start_seconds, end_seconds))
    mark = "#" if read_clip(file).fps is None else "&"
    return f"{os.fspath(file)}{mark}t={','.join(times)}"


def read_clip(path: str | os.PathLike[str]) -> Clip:
    """The clip of a path. A path without a fragment is the whole file."""
    text = os.fspath(path)
    match = _FRAGMENT.fullmatch(text)
    if match is None:
        return Clip(text, None)
    file, rate, rate_of_part, start, end = match.groups()
    return Clip(file, None if start is None else (float(start), float(end)), rate or rate_of_part)
