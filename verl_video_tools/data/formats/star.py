"""STAR (arXiv 2405.09711): questions with four options about situations in videos of Charades.

Format: `STAR_train.json`, `STAR_val.json` (`STAR_test.json` has no answers), lists of `question_id` (such as
"Interaction_T1_13"), `question`, `video_id`, `start` and `end` in seconds, `answer` (the text of a choice), `choices`
(each `choice_id` and `choice`), ...; videos `<video_id>.mp4` of Charades. Read from the README of
github.com/csbobby/STAR_Benchmark and schemas of the files in other public repositories.

A question is about the part from `start` to `end`. STAR's authors cut the video; here the question says which part.
Results are published as the mean of the accuracies of the four types of question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats.entries import Entry, required
from verl_video_tools.data.formats.fields import segment
from verl_video_tools.data.formats.mapped import MappedBenchmark


class STAR(MappedBenchmark):
    """See the module."""

    name = "star"
    groupings = ("type",)
    group_mean = ("type_mean", "type")
    index = "{question_id}"
    split = "train"
    has_split_in_file_name = True
    question = "From {from} to {to} seconds of the video: {question}"
    answer_form = "text"
    videos = ("{video_id}",)
    segment_fields = ("start", "end")

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The `type` of the question, its `options` in the order of their ids, and the part as it is told."""
        question_type = str(required(entry, "question_id")).partition("_")[0]
        choices = required(entry, "choices")
        if not all(isinstance(choice, Mapping) for choice in choices):
            raise RowError(f"the field 'choices' must hold objects with choice_id and choice, got {choices!r:.80}")
        ordered = sorted(choices, key=lambda choice: int(required(choice, "choice_id")))
        options = [str(required(choice, "choice")) for choice in ordered]
        start, end = required(entry, "start"), required(entry, "end")
        seconds = segment(start, end)
        if seconds is None:
            raise RowError(f"the fields 'start' and 'end' must be seconds with start < end, got {start} and {end}")
        return {"type": question_type, "options": options, "from": f"{seconds[0]:g}", "to": f"{seconds[1]:g}"}
