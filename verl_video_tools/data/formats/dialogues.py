"""Published dialogues of a method with a video, for fine-tuning: what they share.

A dialogue is a list `messages` of `role` and `content`, or `conversations` of `from` and `value`, as LLaMA-Factory and
others take them. Contents are texts with `<image>` where an image stands, or lists of parts. Of a dialogue what the
assistant says becomes turns. Prompts, observations and frames are this package's own: calls are executed when the turns
are learnt, which takes the video. Dialogues seldom name it, so that it is looked for by what they do name, or taken
from rows of the same questions (`BenchmarkFiles.questions`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import find_moved_video, question_of_text, without_media_marks
from verl_video_tools.data.formats.known_questions import KnownQuestion, known_questions

_ROLES = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool"}
_VIDEO_FIELDS = ("video", "video_path", "videos")


def read_messages(entry: Entry) -> list[dict[str, str]]:
    """The messages of a dialogue as `role` and `content`, with `<image>` or `<video>` for media.

    Raises:
        RowError: there are none, or one is no message.
    """
    name = "messages" if "messages" in entry else "conversations"
    given = required(entry, name)
    if not isinstance(given, list):
        raise RowError(f"the field {name!r} must list messages, got {given!r:.80}")
    return [_message(message) for message in given]


def _message(message: Any) -> dict[str, str]:
    if not isinstance(message, Mapping):
        raise RowError(f"a message has a role and a content, got {message!r:.80}")
    role = str(message.get("role") or message.get("from"))
    content = message.get("content") if "content" in message else message.get("value")
    if content is None or isinstance(content, str):
        return {"role": _ROLES.get(role, role), "content": content or ""}
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
        raise RowError(f"the content of a message must be a text or a list of parts, got {content!r:.80}")
    return {"role": _ROLES.get(role, role), "content": "".join(map(_text_of, content))}


def _text_of(part: Mapping[str, Any]) -> str:
    if part.get("text"):
        return str(part["text"])
    for kind in ("image", "video"):
        if part.get(f"{kind}_url") or part.get(kind):
            return f"<{kind}>"
    return ""


def named_videos(entry: Entry) -> Iterator[str]:
    """Paths of videos that the fields of an entry name, or those of its `extra_info`."""
    for fields in (entry, entry.get("extra_info")):
        if not isinstance(fields, Mapping):
            continue
        for name in _VIDEO_FIELDS:
            value = fields.get(name)
            if isinstance(value, list) and len(value) == 1:
                (value,) = value
            if isinstance(value, Mapping):
                value = value.get("path") or value.get("video")
            if isinstance(value, str) and value:
                yield value


def locate(names: Sequence[str], known: KnownQuestion | None, files: BenchmarkFiles) -> Path:
    """The video of a dialogue: that of the known question, else the first of these names that the folder has.

    Raises:
        RowError: there is none.
    """
    if known is not None:
        return Path(known.video_path)
    if files.videos is None:
        raise RowError("its question is in none of the rows of --questions, and no folder of videos is given")
    for name in names:
        try:
            return find_moved_video(files.videos, name)
        except RowError:
            continue
    told = f"looked for {', '.join(names[:3])} in {files.videos}" if names else "the dialogue names none"
    raise RowError(f"no video: {told}; rows of the same questions may name it: --questions ROWS.parquet")


class Dialogues(Benchmark):
    """Dialogues of one method: subclasses say how its prompts and answers look."""

    has_turns = True
    place_field = "number"

    @abstractmethod
    def question_of(self, asked: str) -> str:
        """The question in what the user says first, with its option lines."""

    @abstractmethod
    def answer_of(self, turn: str) -> str | None:
        """The answer of a turn; None where it has none."""

    def video_names(self, entry: Entry) -> Iterator[str]:
        """Paths, whole or not, by which the video may be found, the likeliest first."""
        return named_videos(entry)

    def found_frames(self, messages: Sequence[Mapping[str, str]]) -> list[list[int]]:
        """Frames that each search by text has shown, where there are any (`has_found_frames`)."""
        return []

    def frames_in(self, said: str) -> list[float]:
        """Frames that a message of the user lists by their labels, as `frames_listed_by` says."""
        return []

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """The question, without what was said."""
        return self._row(entry, files, read_messages(entry))

    def taught_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        messages = read_messages(entry)
        turns = [_said(message) for message in messages if message["role"] == "assistant"]
        row = self._row(entry, files, messages)
        row |= {"turns": turns, "template": "trace" if len(turns) > 1 else "reasoning"}
        shown = [self.frames_in(message["content"]) for message in messages if message["role"] in ("user", "tool")]
        row["listed_frames"] = [frames for frames in shown if frames]
        return {**row, "retrieved_frames": self.found_frames(messages)} if self.has_found_frames else row

    def texts(self, entry: Entry) -> list[dict[str, str]]:
        return read_messages(entry)

    def _row(self, entry: Entry, files: BenchmarkFiles, messages: Sequence[Mapping[str, str]]) -> Row:
        asked = next((message["content"] for message in messages if message["role"] == "user"), None)
        turns = [_said(message) for message in messages if message["role"] == "assistant"]
        if asked is None or not turns:
            raise RowError("a dialogue has a user's message and an assistant's")
        answer = self.answer_of(turns[-1])
        if not answer:
            raise RowError(f"the last turn does not answer: {turns[-1]!r:.80}")
        question = question_of_text(self.question_of(without_media_marks(asked)), answer)
        names = list(dict.fromkeys(self.video_names(entry)))
        known = known_questions(files.questions).find(question, names) if files.questions is not None else None
        if known is not None:
            question |= {"truth": known.truth, "question_type": known.question_type}
        return benchmark_row(
            self.name,
            index=str(entry.get("id") or entry["number"]),
            split="train",
            video_path=locate(names, known, files),
            video_segment_seconds=None if known is None else known.segment_seconds,
            **question,
        )


def _said(message: Mapping[str, str]) -> str:
    """Marks of media in a thought would count as media when it is learnt."""
    return without_media_marks(message["content"]).strip()
