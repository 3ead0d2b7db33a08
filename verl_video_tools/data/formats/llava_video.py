"""LLaVA-Video-178K (arXiv 2410.02713): 1.3 million instructions on 178,000 videos, among them 960,000 open and 196,000
multiple-choice questions.

Format: folders `<length>_<source>` (`0_30_s_academic_v0_1`) with JSON lists of `id`, `video` (a path below the folder),
`data_source` (its name) and `conversations`, in which `from` is "human" and "gpt" in turn. A conversation is about one
video and may hold several questions, a row each, the first behind the mark `<image>`. Questions with options
(`*_mc_*.json`) end with a line for each and one that asks for a letter, or for letter and text; their answers are "B."
or "B. text.".
Descriptions (`*_cap_*.json`) are no questions.

Read second-hand: from the card of lmms-lab/LLaVA-Video-178K, which lists the files, and from converters in other public
repositories, such as prepare_data/sft of github.com/Yangr116/VST.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, benchmark_row, read_entries, required
from verl_video_tools.data.formats.fields import find_first_video, question_of_text


class LLaVAVideo(Benchmark):
    """See the module."""

    name = "llava-video-178k"

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions of all conversations of a file, or of all files below a folder but those of descriptions."""
        for file in _files(annotations):
            for entry in read_entries(file):
                yield from _questions(entry)

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        asked, said = required(entry, "human"), required(entry, "gpt")
        asked_and_answered = question_of_text(asked, str(said))
        if asked_and_answered["question_type"] == "mc" and not asked_and_answered["options"]:
            truth = asked_and_answered["truth"]
            raise RowError(f"the answer is the letter {truth!r}, but the question does not end with option lines")
        video = str(required(entry, "video"))
        return benchmark_row(
            str(entry.get("data_source") or self.name),
            index=f"{required(entry, 'id')}-{entry['number']}",
            split="train",
            video_path=find_first_video(files.videos, [f"{entry.get('data_source', '')}/{video}".lstrip("/"), video]),
            **asked_and_answered,
        )


def _files(annotations: Path) -> list[Path]:
    """Raises UsageError where a folder holds none."""
    if not annotations.is_dir():
        return [annotations]
    files = sorted(file for file in annotations.rglob("*.json") if "_cap" not in file.stem)
    if not files:
        raise UsageError(f"{annotations}: holds no files of questions (*_mc_*.json, *_oe_*.json)")
    return files


def _questions(entry: Any) -> Iterator[ReadEntry]:
    """Each question of a conversation with its answer, as `human` and `gpt`, and its number from 0."""
    if not isinstance(entry, Mapping):
        yield entry
        return
    turns = entry.get("conversations")
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns) or len(turns) % 2:
        yield RowError("the field 'conversations' must list pairs of a question and its answer")
        return
    for number, (asked, said) in enumerate(zip(turns[::2], turns[1::2], strict=True)):
        if (asked.get("from"), said.get("from")) != ("human", "gpt"):
            yield RowError(f"in 'conversations' human and gpt must take turns, got {asked.get('from')!r} and then "
                           f"{said.get('from')!r}")  # fmt: skip
            continue
        yield {**entry, "number": number, "human": asked.get("value"), "gpt": said.get("value")}
