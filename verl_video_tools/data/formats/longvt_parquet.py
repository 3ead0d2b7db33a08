"""VideoSIAH: the data that LongVT (arXiv 2511.20785) is trained on, parquet files of longvideotool/LongVT-Parquet.

Rows for reinforcement learning (`longvt_rl_*.parquet`) have `data_source`, `prompt`, `videos` (one,
``{"video": "file://...", ...}``), `reward_model.ground_truth` and `extra_info`: `question`, `answer`, `video_segment`
[start, end] in seconds, `index`, `split`, `tools_kwargs`. Read from examples/video_tools/process_time_r1.py of
github.com/EvolvingLMMs-Lab/LongVT and converters of the files in other public repositories. The prompt, with the
published instructions, and the limits of the frames are the method's own here.

Rows of the sources `TimeR1`, `TVG-R1...` and `time-r1` ask for a segment, as the published reward routes them.

Files for fine-tuning (`longvt_sft_*.parquet`, `longvt_rft_*.parquet`) have `id` and `messages`: `role` and `content`, a
text or a list of parts with `text`, `image_url.url` or `video_url.url`; those without a tool have one reply, a thought
and an answer. Traces with a tool may name their calls in the text or in `tool_calls`; the user's text ends with the
published instructions, from "Think first" or "The video path" on. What the tool replied is a message of the tool or of
the user. Where the user's message has no video, it is named in those instructions ("The video path for this video is
X"), or in the calls (`video_path`). Read second-hand, from such converters alone.

Of a dialogue what the assistant says becomes turns; what the tool replied is shown anew when they are learnt. Paths in
calls are those of another machine, and left out. Truths and segments, which dialogues do not have, are those of rows of
the same questions (`BenchmarkFiles.questions`), such as VideoSIAH's own for reinforcement learning, which the dialogues
for reinforcement fine-tuning (`longvt_rft_selftrace_15k3.parquet`) were made from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.dialogues import located
from verl_video_tools.data.formats.entries import VIDEO_SUFFIXES, Entry, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import find_moved_video, question_of_text, segment, without_media_marks

_INSTRUCTIONS = re.compile(r"\s*(?:Think first\b|The video path (?:for|of) this video\b).*", re.DOTALL | re.IGNORECASE)
_TOLD_PATH = re.compile(
    rf"The video path (?:for|of) this video is:?\s*(\S.*?(?:{'|'.join(map(re.escape, VIDEO_SUFFIXES))}))\b",
    re.IGNORECASE,
)
"""With the points and spaces of a name: ``AO8RW_0.0_6.9.mp4``."""
_CALLED_PATH = re.compile(r'"video_path"\s*:\s*"([^"]+)"')
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


class LongVTParquet(Benchmark):
    """See the module."""

    name = "longvt-parquet"
    has_turns = True
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

    def taught_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """What the assistant says, turn by turn; its last answer is the truth."""
        messages = required(entry, "messages")
        asked = [message for message in messages if message.get("role") == "user"]
        turns = [without_media_marks(_said(message)) for message in messages if message.get("role") == "assistant"]
        if not asked or not turns:
            raise RowError("the column 'messages' must hold a user's message and an assistant's")
        videos, images = list(_media(asked[0], "video")), list(_media(asked[0], "image"))
        if not videos and not images:
            videos = list(_told_videos(asked[0], messages))[:1]
        if len(videos) + bool(images) != 1:
            raise RowError(f"the user must show one video, or images, got {len(videos)} and {len(images)}")
        question = question_of_text(_INSTRUCTIONS.sub("", _text(asked[0])), turns[-1])
        if videos:
            question = located(question, videos, files)
        row = benchmark_row(
            self.name,
            index=str(entry.get("id") or ""),
            split="train",
            image_paths=[find_moved_video(files.videos, path, "image") for path in images],
            **{"video_path": None, **question},
        )
        template = "pictures" if images else "trace" if len(turns) > 1 else "reasoning"
        return {**row, "turns": turns, "template": template}


def _told_videos(asked: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Videos that the instructions name, or the calls."""
    yield from _TOLD_PATH.findall(_text(asked))
    for message in messages:
        if message.get("role") == "assistant":
            yield from _CALLED_PATH.findall(_said(message, keeps_path=True))


def _parts(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        yield {"text": content}
    else:
        yield from content or ()


def _text(message: Mapping[str, Any]) -> str:
    return "".join(str(part["text"]) for part in _parts(message) if part.get("text")).strip()


def _media(message: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Paths of a message's images, or videos, in order."""
    for part in _parts(message):
        place = part.get(f"{kind}_url") or part.get(kind)
        if place:
            yield str(required(place, "url") if isinstance(place, Mapping) else place)


def _said(message: Mapping[str, Any], keeps_path: bool = False) -> str:
    """An assistant's text with its calls in it, in the form of the chat template."""
    text = _text(message) if keeps_path else _CALL.sub(_without_path, _text(message))
    named = [] if _CALL.search(text) else message.get("tool_calls") or []
    return "\n".join([text, *(_call(call.get("function") or call, keeps_path) for call in named)]).strip()


def _without_path(found: re.Match[str]) -> str:
    try:
        return _call(json.loads(found[1]))
    except (ValueError, TypeError, AttributeError):  # as the assistant wrote it, right or wrong
        return found[0]


def _call(function: Mapping[str, Any], keeps_path: bool = False) -> str:
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    kept = {
        name: value for name, value in arguments.items() if value is not None and (keeps_path or name != "video_path")
    }
    return f"<tool_call>\n{json.dumps({'name': function.get('name'), 'arguments': kept})}\n</tool_call>"


def _asks_for_segment(data_source: str) -> bool:
    return data_source in ("TimeR1", "time-r1") or data_source.startswith("TVG-R1")
