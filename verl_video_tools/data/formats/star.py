"""STAR (arXiv 2405.09711): questions with four options about situations in videos of Charades.

Format: `STAR_train.json`, `STAR_val.json` (`STAR_test.json` has no answers), lists of `question_id` (such as
"Interaction_T1_13"), `question`, `video_id`, `start` and `end` in seconds, `answer` (the text of a choice), `choices`
(each `choice_id` and `choice`), ...; videos `<video_id>.mp4` of Charades. Read from the README of
github.com/csbobby/STAR_Benchmark and schemas of the files in other public repositories.

A question is about the part from `start` to `end`. STAR's authors cut the video; here the question says which part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles, GradedItem
from verl_video_tools.data.formats.entries import Entry, Row, benchmark_row, find_video, required
from verl_video_tools.data.formats.fields import letter_of, segment, split_name
from verl_video_tools.data.formats.means import mean_of_groups


class STAR(Benchmark):
    """See the module."""

    name: ClassVar[str] = "star"
    groupings: ClassVar[tuple[str, ...]] = ("type",)

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        question_id = str(required(entry, "question_id"))
        choices = required(entry, "choices")
        if not all(isinstance(choice, Mapping) for choice in choices):
            raise RowError(f"the field 'choices' must hold objects with choice_id and choice, got {choices!r:.80}")
        ordered = sorted(choices, key=lambda choice: int(required(choice, "choice_id")))
        options = [str(required(choice, "choice")) for choice in ordered]
        start, end = required(entry, "start"), required(entry, "end")
        seconds = segment(start, end)
        if seconds is None:
            raise RowError(f"the fields 'start' and 'end' must be seconds with start < end, got {start} and {end}")
        return benchmark_row(
            self.name,
            index=question_id,
            split=split_name(files.annotations, "train"),
            video_path=find_video(files.videos, str(required(entry, "video_id"))),
            question=f"From {seconds[0]:g} to {seconds[1]:g} seconds of the video: {required(entry, 'question')}",
            options=options,
            truth=letter_of(required(entry, "answer"), options, "answer"),
            video_segment_seconds=seconds,
            groups={"type": question_id.partition("_")[0]},
        )

    def metrics(self, items: Sequence[GradedItem]) -> dict[str, float]:
        """`type_mean`: the mean of the accuracies of the four types of question, by which results are published."""
        return {"type_mean": mean_of_groups(items, "type")}
