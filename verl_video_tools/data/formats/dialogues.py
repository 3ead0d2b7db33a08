"""Dialogues of a method with a video, for fine-tuning: what they share.

A dialogue is a list `messages` of `role` and `content`, or `conversations` of `from` and `value`. Contents are texts
with `<image>` where an image stands, or lists of parts. Of a dialogue what the assistant says becomes turns. Prompts,
observations and frames are this package's own: calls are executed when the turns are learnt, which takes the video.
Dialogues seldom name it, so that it is looked for by what they do name, or taken from rows of the same questions
(`BenchmarkFiles.questions`), which know the truth and the segment as well.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.numbers import canonical_number
from verl_video_tools.core.sample import Sample, read_clip
from verl_video_tools.core.truths import QuestionType, default_question_type
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import VIDEO_SUFFIXES, Entry, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import (
    find_moved_video,
    question_of_text,
    segment,
    tagged_answer,
    without_media_marks,
)
from verl_video_tools.data.parquet import row_batches
from verl_video_tools.data.picture_rows import weights_of_turns

_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class Message:
    """A message of a dialogue.

    Attributes:
        role: system, user, assistant or tool.
        text: with calls that stand beside it, in the form of the chat template.
        videos, images: paths of media among its parts.
        weight: of the loss on it; None where the dialogue says nothing.
    """

    role: str
    text: str
    videos: Sequence[str]
    images: Sequence[str]
    weight: float | None = None


_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "function_call", "tool_call"), "assistant"),
    **dict.fromkeys(("tool", "observation", "function", "function_response", "tool_response"), "tool"),
}
_CALLING_ROLES = ("function_call", "tool_call")
"""Roles of messages that are a call: its JSON, or a list of several, behind a thought or not."""


def _messages(entry: Entry) -> list[Message]:
    """Consecutive messages of the assistant, such as a thought and a call, are one.

    Raises:
        RowError: there are none, or one's role is unknown.
    """
    messages: list[Message] = []
    filled = {name: value for name, value in entry.items() if value is not None}  # a table has a column for each
    for number, message in enumerate(required(filled, "messages", "conversations")):
        name = message.get("role") or message.get("from")
        if not isinstance(name, str) or name not in _ROLES:
            raise RowError(f"message {number} has the role {name!r:.40}; these are read: {', '.join(_ROLES)}")
        content = message.get("content") or message.get("value") or ""
        parts = [{"text": content}] if isinstance(content, str) else content
        text = "".join(str(part.get("text") or "") for part in parts).strip()
        calls = () if _CALL.search(text) else message.get("tool_calls") or ()
        if name in _CALLING_ROLES and not _CALL.search(text):
            text, calls = _split_calls(text)
        text = "\n".join([text, *(_call_text(call.get("function") or call) for call in calls)]).strip()
        weight = message.get("loss") if message.get("weight") is None else message["weight"]
        read = Message(_ROLES[name], text, _media(parts, "video"), _media(parts, "image"), weight)
        if messages and messages[-1].role == read.role == "assistant":
            before = messages.pop()
            weight = before.weight if weight is None else weight
            read = replace(read, text=f"{before.text}\n{text}".strip(), weight=weight)
        messages.append(read)
    return messages


def _split_calls(text: str) -> tuple[str, list[Any]]:
    """What stands before the JSON of a call, and the calls."""
    thought, tag, rest = text.rpartition("</think>")
    try:
        calls = json.loads(rest)
    except (ValueError, RecursionError) as error:
        raise RowError(f"the message of a call holds no JSON: {rest!r:.80}") from error
    return thought + tag, calls if isinstance(calls, list) else [calls]


def _media(parts: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    places = (part.get(f"{kind}_url") or part.get(kind) for part in parts)
    return [str(required(place, "url") if isinstance(place, Mapping) else place) for place in places if place]


def _call_text(function: Mapping[str, Any], without: str | None = None) -> str:
    """A call in the form of the chat template, without one of its arguments."""
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    others = {name: value for name, value in arguments.items() if value is not None and name != without}
    return f"<tool_call>\n{json.dumps({'name': function.get('name'), 'arguments': others})}\n</tool_call>"


class Dialogues(Benchmark):
    """Dialogues of one method: subclasses say how its prompts and answers look."""

    has_turns = True
    place_field = "number"

    @abstractmethod
    def question_of(self, prompt: str) -> str:
        """The question in what the user says first, with its option lines."""

    @abstractmethod
    def answer_of(self, turn: str) -> str | None:
        """The answer of a turn; None where it has none."""

    def turn_of(self, text: str) -> str:
        """What the assistant says, as it is learnt: marks of media in a thought would count as media."""
        return without_media_marks(text).strip()

    def video_names(self, entry: Entry, messages: Sequence[Message]) -> Iterator[str]:
        """Paths, whole or not, by which the video may be found, the likeliest first: here those of the fields."""
        for name in ("video", "video_path", "videos"):
            value = entry.get(name)
            if isinstance(value, list) and len(value) == 1:
                (value,) = value
            if isinstance(value, Mapping):
                value = value.get("video") or value.get("path")
            if isinstance(value, str) and value:
                yield value

    def images_of(self, prompt: Message) -> Sequence[str]:
        """Images that the question is about, in place of a video."""
        return ()

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """The question, without what was said."""
        row = self.sft_row(entry, files)
        return {name: value for name, value in row.items() if name not in ("turns", "turn_weights", "template")}

    def sft_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        messages = _messages(entry)
        prompt = next((message for message in messages if message.role == "user"), None)
        replies = [message for message in messages if message.role == "assistant"]
        turns = [self.turn_of(message.text) for message in replies]
        if prompt is None or not turns:
            raise RowError("a dialogue has a user's message and an assistant's")
        answer = self.answer_of(turns[-1])
        if not answer:
            raise RowError(f"the last turn does not answer: {turns[-1]!r:.80}")
        question = question_of_text(self.question_of(without_media_marks(prompt.text)), answer)
        if images := self.images_of(prompt):
            media = {"image_paths": [find_moved_video(files.videos, path, "image") for path in images]}
            question |= {"video_path": None, **media}
        else:
            question = located(question, list(dict.fromkeys(self.video_names(entry, messages))), files)
        index = str(entry.get("id") or entry["number"])
        row = benchmark_row(self.name, index=index, split="train", **question)
        row |= {"turns": turns, "template": "pictures" if images else "trace" if len(turns) > 1 else "reasoning"}
        if any(message.weight is not None for message in replies):
            row["turn_weights"] = [1.0 if message.weight is None else message.weight for message in replies]
            row["turn_weights"] = weights_of_turns(row)
        return row


# ------------------------------------------------------------------------------------------ rows of the same questions


@dataclass(frozen=True)
class _IndexedQuestion:
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
    match = None if files.questions is None else _matching_row(files.questions, question, names)
    if match is not None:
        truth = {"truth": match.truth, "question_type": match.question_type}
        return {
            **question,
            **truth,
            "video_path": Path(match.video_path),
            "video_segment_seconds": match.segment_seconds,
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


def _matching_row(path: Path, question: Mapping[str, Any], names: Sequence[str]) -> _IndexedQuestion | None:
    lines = [question["question"], *(f"{chr(65 + n)}. {text}" for n, text in enumerate(question["options"]))]
    text, index = _plain("\n".join(lines)), _question_index(path)
    same = index.get((text, None), {})
    if len(same) > 1:
        named = (index.get((text, PurePath(name).stem), {}) for name in names)
        same = {row: None for rows in named for row in rows} or same
    if len(same) > 1:
        videos = ", ".join(PurePath(row.video_path).name for row in islice(same, 3))
        raise RowError(f"several rows ask its question, about {videos}, and the dialogue does not say which is meant")
    return next(iter(same), None)


@lru_cache(maxsize=1)
def _question_index(path: Path) -> Mapping[tuple[str, str | None], dict[_IndexedQuestion, None]]:
    """Questions of a file of rows, by their text without regard to white space and case, and by the video's name or
    None for any. Dictionaries as sets in order: a data set may ask the same of 100,000 videos.

    Raises:
        UsageError: it cannot be read, or holds no rows about videos.
    """
    questions: dict[tuple[str, str | None], dict[_IndexedQuestion, None]] = defaultdict(dict)
    for row in (row for batch in row_batches(path, ("reward_model", "extra_info")) for row in batch.to_pylist()):
        try:
            sample = Sample.from_row(row)
        except RowError:
            continue  # `vvt data validate` names those
        if sample.video_path:
            truth = sample.ground_truth, sample.question_type, sample.video_segment_seconds
            indexed = _IndexedQuestion(sample.video_path, *truth)
            for name in (None, PurePath(read_clip(indexed.video_path).file).stem):
                questions[_plain(sample.question), name][indexed] = None
    if not questions:
        raise UsageError(f"{path} holds no rows about videos; make some with `vvt data convert`")
    return dict(questions)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


_FRAMES = re.compile(r"^\s*frame \d+:.*", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_ANSWER = re.compile(r"<action>\s*output answer:\s*(\S.*?)\s*</action>", re.DOTALL)
_NUMBER = re.compile(r"(?:^|[_-])(?:frame[_-]?)?\d+$", re.IGNORECASE)
_ROUND = re.compile(r"_iter_\d+$")


class FrameThinkerSFT(Dialogues):
    """The cold start of FrameThinker (arXiv 2509.24304): `SFT.json` in examples/agent.

    Format: a JSON list of `messages` (`user` and `assistant`), `images` (paths of the frames) and `system`. The first
    message of the user is the question, an option per line (`A: text`), then a line per frame, `frame 159: <image>`;
    later ones are such lines, or `Frame number at time 1:30 is: 2700.` The assistant writes the method's own grammar.
    The file itself is kept by Git LFS and could not be read: fields are second-hand, from a walk-through in a public
    repository, and the lines of frames from examples/agent/infer.py of github.com/lcqysl/FrameThinker-RL.

    No video is named. It is looked for by the folder of the first image, and by the image's name without its number,
    which is how infer.py names frames (`VIDEO/frame_159.jpg`, `VIDEO_159.jpg`)."""

    name = "framethinker-sft"
    columns = ("messages", "images", "id", "video")

    def question_of(self, prompt: str) -> str:
        return _FRAMES.sub("", prompt).strip()

    def answer_of(self, turn: str) -> str | None:
        match = _ANSWER.search(turn)
        return match[1] if match else None

    def video_names(self, entry: Entry, messages: Sequence[Message]) -> Iterator[str]:
        yield from super().video_names(entry, messages)
        images = entry.get("images") or ()
        for image in images[:1]:
            path = PurePosixPath(str(image.get("path") if isinstance(image, Mapping) else image).replace("\\", "/"))
            if stem := _NUMBER.sub("", path.stem):
                yield str(path.with_name(stem))
            if path.parent.name:
                yield str(path.parent.with_name(_ROUND.sub("", path.parent.name)))


_THOUGHT = re.compile(r".*</think>", re.DOTALL)
_TAG = re.compile(r"<[a-z_]+>", re.IGNORECASE)


def _calls(turn: str) -> bool:
    """Whether a turn calls a tool, in any method's grammar: behind its thought it has a tag other than the answer's."""
    rest = _THOUGHT.sub("", turn)
    return "<answer>" not in rest and _TAG.search(rest) is not None


class Messages(Dialogues):
    """Dialogues of your own in the forms of LLaMA-Factory (github.com/hiyouga/LLaMA-Factory), ms-swift
    (github.com/modelscope/ms-swift) and OpenAI's interface.

    Format: JSON, JSON lines or parquet. An entry has `conversations` (ShareGPT: `from` and `value`) or `messages`
    (`role` and `content`, a text or a list of parts), and names its video in `videos` (a list of one), `video`,
    `video_path` or a part. Calls are `tool_calls`, `<tool_call>` blocks, or messages of the roles function_call and
    tool_call; a reply of a tool is a message of the roles tool, observation, function, function_response or
    tool_response, or of the user behind a turn that calls. `weight` (OpenAI) or `loss` (ms-swift) of an assistant's
    message is the turn's weight.

    The first message of the user is the question, the last answer of the assistant is the truth. With --turns its
    messages become the turns, which must be in the grammar of --method. Replies of tools and system prompts are left
    out: the method has its own, and executes the calls anew."""

    name = "messages"
    columns = ("messages", "conversations", "videos", "video", "video_path", "id")

    def question_of(self, prompt: str) -> str:
        return prompt

    def answer_of(self, turn: str) -> str | None:
        if match := _ANSWER.search(turn):
            return match[1]
        return None if _calls(turn) else tagged_answer(_THOUGHT.sub("", turn))

    def video_names(self, entry: Entry, messages: Sequence[Message]) -> Iterator[str]:
        yield from super().video_names(entry, messages)
        yield from _asked_videos(messages)

    def sft_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        messages = _messages(entry)
        for reply, following in pairwise(messages):
            if (reply.role, following.role) == ("assistant", "user") and not _calls(reply.text):
                raise RowError(f"the user asks again after {reply.text!r:.80}; a row holds one question")
        for videos in (entry.get("videos"), _asked_videos(messages)):
            if isinstance(videos, list) and len(videos) > 1:
                raise RowError(f"it names several videos, {videos!r:.120}; a row of a dialogue has one")
        shows_images = any(message.images or "<image>" in message.text for message in messages)
        if shows_images and files.questions is None and not any(self.video_names(entry, messages)):
            raise RowError("it shows images and no video, and a row is about a video; name theirs in 'videos'")
        row = super().sft_row(entry, files)
        truth, extra_info = row["reward_model"]["ground_truth"], row["extra_info"]
        if extra_info["question_type"] == "open":  # as of a table without types
            is_number = canonical_number(truth) is not None
            extra_info["question_type"] = "numeric" if is_number else default_question_type(truth, ())
        return row


def _asked_videos(messages: Sequence[Message]) -> list[str]:
    return [video for message in messages if message.role == "user" for video in message.videos]


_EXAMPLES = re.compile(r".*Now answer the following question:", re.DOTALL)
_VIDEOZOOMER_FRAME = re.compile(r"<frame\d+_time(\d{1,9}(?:\.\d+)?)s>")
_BOX = re.compile(r"\\boxed\{(.*)\}", re.DOTALL)


class VideoZoomerSFT(Dialogues):
    """The cold start of VideoZoomer (arXiv 2512.22315): the data set zsgvivo/videozoomer_sft on Hugging Face.

    Format: a JSON list, JSON lines or parquet of `messages` (`system`, `user`, `assistant`) and `images` (paths of PNG
    files), as LLaMA-Factory takes them. The first message of the user has a label and an `<image>` per frame,
    `<frame0_time0.00s><image>`, then the question; it may follow examples that end with "Now answer the following
    question:".
    Read from scripts/video_eval/tool_call_infer.py of github.com/zsgvivo/VideoZoomer, which writes such files; the data
    set itself was not read.

    The published files name no video (images lie in folders named by a hash). Rows of the questions do: convert the
    file that reinforcement learning takes (`videozoomer-json`), and give it as `--questions`."""

    name = "videozoomer-sft"
    columns = ("messages", "id", "videos", "video")

    def question_of(self, prompt: str) -> str:
        return _VIDEOZOOMER_FRAME.sub("", _EXAMPLES.sub("", prompt)).strip()

    def answer_of(self, turn: str) -> str | None:
        if "<answer>" not in turn:
            return None
        answer = tagged_answer(turn)
        boxed = _BOX.search(answer)
        return boxed[1].strip() if boxed else answer


_INSTRUCTIONS = re.compile(r"\s*(?:Think first\b|The video path (?:for|of) this video\b).*", re.DOTALL | re.IGNORECASE)
_PROMPT_PATH = re.compile(
    rf"The video path (?:for|of) this video is:?\s*(\S.*?(?:{'|'.join(map(re.escape, VIDEO_SUFFIXES))}))\b",
    re.IGNORECASE,
)
"""With the points and spaces of a name: ``AO8RW_0.0_6.9.mp4``."""
_CALLED_PATH = re.compile(r'"video_path"\s*:\s*"([^"]+)"')


class LongVTParquet(Dialogues):
    """VideoSIAH: the data that LongVT (arXiv 2511.20785) is trained on, parquet files of longvideotool/LongVT-Parquet.

    Rows for reinforcement learning (`longvt_rl_*.parquet`) have `data_source`, `prompt`, `videos` (one, ``{"video":
    "file://...", ...}``), `reward_model.ground_truth` and `extra_info`: `question`, `answer`, `video_segment` [start,
    end] in seconds, `index`, `split`, `tools_kwargs`. Read from examples/video_tools/process_time_r1.py of
    github.com/EvolvingLMMs-Lab/LongVT and converters of the files in other public repositories. The prompt, with the
    published instructions, and the limits of the frames are the method's own here.

    Rows of the sources `TimeR1`, `TVG-R1...` and `time-r1` ask for a segment, as the published reward routes them.

    Files for fine-tuning (`longvt_sft_*.parquet`, `longvt_rft_*.parquet`) have `id` and `messages`: `role` and
    `content`, a text or a list of parts with `text`, `image_url.url` or `video_url.url`; those without a tool have one
    reply, a thought and an answer. Traces with a tool may name their calls in the text or in `tool_calls`; the user's
    text ends with the published instructions, from "Think first" or "The video path" on. What the tool replied is a
    message of the tool or of the user. Where the user's message has no video, it is named in those instructions ("The
    video path for this video is X"), or in the calls (`video_path`). Read second-hand, from such converters alone.

    Of a dialogue what the assistant says becomes turns; what the tool replied is shown anew when they are learnt. Paths
    in calls are those of another machine, and left out. Truths and segments, which dialogues do not have, are those of
    rows of the same questions (`BenchmarkFiles.questions`), such as VideoSIAH's own for reinforcement learning, which
    the dialogues for reinforcement fine-tuning (`longvt_rft_selftrace_15k3.parquet`) were made from."""

    name = "longvt-parquet"
    columns = ("data_source", "videos", "reward_model", "extra_info", "id", "messages")

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        if "messages" in entry and "extra_info" not in entry:
            raise RowError("it is a dialogue for fine-tuning; --turns reads those")
        extra_info, videos = required(entry, "extra_info"), required(entry, "videos")
        if len(videos) != 1 or not isinstance(videos[0], Mapping):
            raise RowError(f"the column 'videos' must list one video, got {videos!r:.80}")
        bounds = extra_info.get("video_segment")
        seconds = segment(*bounds) if bounds is not None and len(bounds) == 2 else None
        if bounds is not None and len(bounds) and seconds is None:
            raise RowError(f"the field 'video_segment' must be [start, end] with start < end, got {bounds}")
        source = str(entry.get("data_source") or self.name)
        return benchmark_row(
            source,
            index=str(extra_info.get("index", "")),
            split=str(extra_info.get("split") or "train"),
            video_path=find_moved_video(files.videos, str(required(videos[0], "video"))),
            question=str(required(extra_info, "question")),
            truth=str(required(required(entry, "reward_model"), "ground_truth")),
            question_type="segment" if _asks_for_segment(source) else "open",
            video_segment_seconds=seconds,
        )

    def question_of(self, prompt: str) -> str:
        return _INSTRUCTIONS.sub("", prompt)

    def answer_of(self, turn: str) -> str:
        return tagged_answer(turn)

    def turn_of(self, text: str) -> str:
        return super().turn_of(_CALL.sub(_without_path, text))

    def images_of(self, prompt: Message) -> Sequence[str]:
        if len(prompt.videos) + bool(prompt.images) > 1:
            raise RowError(
                f"the user must show one video, or images, got {len(prompt.videos)} and {len(prompt.images)}"
            )
        return prompt.images

    def video_names(self, entry: Entry, messages: Sequence[Message]) -> Iterator[str]:
        """The user's video, or the first that the instructions name, or the calls."""
        prompt = next(message for message in messages if message.role == "user")
        calls = [message.text for message in messages if message.role == "assistant"]
        named = [*_PROMPT_PATH.findall(prompt.text), *(path for text in calls for path in _CALLED_PATH.findall(text))]
        yield from prompt.videos or named[:1]


def _without_path(match: re.Match[str]) -> str:
    try:
        return _call_text(json.loads(match[1]), without="video_path")
    except (ValueError, TypeError, AttributeError):  # as the assistant wrote it, right or wrong
        return match[0]


def _asks_for_segment(data_source: str) -> bool:
    return data_source in ("TimeR1", "time-r1") or data_source.startswith("TVG-R1")
