"""Published dialogues of a method with a video, for fine-tuning: what they share.

A dialogue is a list `messages` of `role` and `content`, or `conversations` of `from` and `value`, as LLaMA-Factory and
others take them. Contents are texts with `<image>` where an image stands, or lists of parts. Of a dialogue what the
assistant says becomes turns. Prompts, observations and frames are this package's own: calls are executed when the turns
are learnt, which takes the video. Dialogues seldom name it, so that it is looked for by what they do name, or taken
from rows of the same questions (`BenchmarkFiles.questions`), which know the truth and the segment as well.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.sample import Sample, read_clip
from verl_video_tools.core.truths import QuestionType
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import find_moved_video, question_of_text, without_media_marks
from verl_video_tools.data.parquet import row_batches

_ROLES = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool"}


def _messages(entry: Entry) -> list[dict[str, str]]:
    """The messages of a dialogue as `role` and `content`."""
    messages = []
    for message in required(entry, "messages" if "messages" in entry else "conversations"):
        role = str(message.get("role") or message.get("from"))
        content = message.get("content") or message.get("value") or ""
        if not isinstance(content, str):
            content = "".join(str(part.get("text") or "") for part in content)
        messages.append({"role": _ROLES.get(role, role), "content": content})
    return messages


def named_videos(entry: Entry) -> Iterator[str]:
    """Paths of videos that the fields of an entry name."""
    for name in ("video", "video_path", "videos"):
        value = entry.get(name)
        if isinstance(value, list) and len(value) == 1:
            (value,) = value
        if isinstance(value, str) and value:
            yield value


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

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """The question, without what was said."""
        return self._row(entry, files, _messages(entry))

    def taught_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        messages = _messages(entry)
        turns = [_said(message) for message in messages if message["role"] == "assistant"]
        row = self._row(entry, files, messages)
        row |= {"turns": turns, "template": "trace" if len(turns) > 1 else "reasoning"}
        return {**row, "retrieved_frames": self.found_frames(messages)} if self.has_found_frames else row

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
        index = str(entry.get("id") or entry["number"])
        return benchmark_row(self.name, index=index, split="train", **located(question, names, files))


def _said(message: Mapping[str, str]) -> str:
    """Marks of media in a thought would count as media when it is learnt."""
    return without_media_marks(message["content"]).strip()


# ------------------------------------------------------------------------------------------ rows of the same questions


@dataclass(frozen=True)
class _KnownQuestion:
    """What a row says of its question."""

    video_path: str
    truth: str
    question_type: QuestionType
    segment_seconds: tuple[float, float] | None


def located(question: Mapping[str, Any], names: Sequence[str], files: BenchmarkFiles) -> dict[str, Any]:
    """A question with its video: that of the row that asks the same, which knows truth and segment, too, or else the
    first of the names that the folder of videos has.

    Args:
        question: as `fields.question_of_text` gives it.
        names: of its video, whole paths or not; of several rows that ask the same, the one about this video counts.

    Returns:
        What `benchmark_row` takes.

    Raises:
        RowError: there is no video, or several rows ask the same and no name decides.
    """
    known = None if files.questions is None else _known(files.questions, question, names)
    if known is not None:
        truth = {"truth": known.truth, "question_type": known.question_type}
        return {
            **question,
            **truth,
            "video_path": Path(known.video_path),
            "video_segment_seconds": known.segment_seconds,
        }
    if files.videos is None:
        raise RowError("its question is in none of the rows of --questions, and no folder of videos is given")
    for name in names:
        try:
            return {**question, "video_path": find_moved_video(files.videos, name)}
        except RowError:
            continue
    reason = f"looked for {', '.join(names[:3])} in {files.videos}" if names else "the dialogue names none"
    raise RowError(f"no video: {reason}; rows of the same questions may name it: --questions ROWS.parquet")


def _known(path: Path, question: Mapping[str, Any], names: Sequence[str]) -> _KnownQuestion | None:
    lines = [question["question"], *(f"{chr(65 + n)}. {text}" for n, text in enumerate(question["options"]))]
    asked, known_questions = _plain("\n".join(lines)), _known_questions(path)
    same = known_questions.get((asked, None), {})
    if len(same) > 1:
        named = (known_questions.get((asked, PurePath(name).stem), {}) for name in names)
        same = {known: None for found in named for known in found} or same
    if len(same) > 1:
        videos = ", ".join(PurePath(known.video_path).name for known in islice(same, 3))
        raise RowError(f"several rows ask its question, about {videos}, and the dialogue does not say which is meant")
    return next(iter(same), None)


@lru_cache(maxsize=1)
def _known_questions(path: Path) -> Mapping[tuple[str, str | None], dict[_KnownQuestion, None]]:
    """Questions of a file of rows, by their text without regard to white space and case, and by the video's name or
    None for any. Dictionaries as sets in order: a data set may ask the same of 100,000 videos.

    Raises:
        UsageError: it cannot be read, or holds no rows about videos.
    """
    questions: dict[tuple[str, str | None], dict[_KnownQuestion, None]] = defaultdict(dict)
    for row in (row for batch in row_batches(path, ("reward_model", "extra_info")) for row in batch.to_pylist()):
        try:
            sample = Sample.from_row(row)
        except RowError:
            continue  # `vvt data validate` names those
        if sample.video_path:
            truth = sample.ground_truth, sample.question_type, sample.video_segment_seconds
            known = _KnownQuestion(sample.video_path, *truth)
            for name in (None, PurePath(read_clip(known.video_path).file).stem):
                questions[_plain(sample.question), name][known] = None
    if not questions:
        raise UsageError(f"{path} holds no rows about videos; make some with `vvt data convert`")
    return dict(questions)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
