"""LongVideoBench (arXiv 2407.15754): multiple-choice questions that refer to moments of videos of up to an hour.

Format: `lvb_val.json`, a list of `id`, `video_path`, `subtitle_path`, `question`, `candidates`, `correct_choice` (from
0), `question_category`, `topic_category`, `duration_group`, `duration` in seconds, `starting_timestamp_for_subtitles`,
...; videos `videos/<video_path>`, subtitles `subtitles/<subtitle_path>`, JSON lists of either `start`, `end`
("HH:MM:SS.mmm"), `line` or `timestamp` [start, end], `text`. The data set's parquet files have `option0` to `option4`
instead of `candidates`, "N/A" where there are fewer. The test split is published without answers.
Its subtitles stand between the frames, each after the frames up to the middle of its time, which is shifted by
`starting_timestamp_for_subtitles`; they end with `duration`.
Read from github.com/longvideobench/LongVideoBench (longvideobench_dataset.py) and lmms_eval/tasks/longvideobench of
github.com/EvolvingLMMs-Lab/lmms-eval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.segments import clock_seconds
from verl_video_tools.core.types import Subtitle
from verl_video_tools.data.formats.entries import Entry, load_json, path_below, required
from verl_video_tools.data.formats.mapped import MappedBenchmark

_MAX_OPTIONS = 5


class LongVideoBench(MappedBenchmark):
    """See the module."""

    name = "longvideobench"
    groupings = ("duration_group", "question_category", "topic_category")
    subtitle_form = "interleaved"
    shortest_subtitle_seconds = 1.0
    split = "val"
    has_split_in_file_name = True
    options = "candidates"
    answer = "correct_choice"
    answer_form = "number"
    videos = ("{video_path}",)

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The options, where each has a column."""
        columns = [entry.get(f"option{number}") for number in range(_MAX_OPTIONS)]
        if self.options in entry or not any(columns):
            return {}
        return {"options": [str(option) for option in columns if option not in (None, "", "N/A")]}

    def read_subtitles(self, folder: Path, entry: Entry) -> Sequence[Subtitle]:
        """Captions with times of the video: some videos are parts of longer ones, whose subtitles these are."""
        path = path_below(folder, str(required(entry, "subtitle_path")), "subtitle file")
        try:
            captions = load_json(path)
        except UsageError as error:
            raise RowError(f"cannot read subtitles: {error}") from error
        offset = float(entry.get("starting_timestamp_for_subtitles") or 0.0)
        end_of_video = offset + float(entry.get("duration") or math.inf)
        subtitles = []
        for number, caption in enumerate(captions if isinstance(captions, list) else [captions]):
            try:
                start, end, text = _caption(caption)
            except (KeyError, TypeError, ValueError) as error:
                raise RowError(f"{path}: caption {number} is not one: {caption!r:.80}") from error
            if end > offset and start < end_of_video and text.strip():
                end = end_of_video if end == math.inf else end
                subtitles.append(Subtitle(start - offset, end - offset, " ".join(text.split())))
        return subtitles


def _caption(caption: Any) -> tuple[float, float, str]:
    if "timestamp" in caption:
        start, end = caption["timestamp"]
        return float(start), float("inf") if end is None else float(end), str(caption["text"])
    start, end = clock_seconds(caption["start"]), clock_seconds(caption["end"])
    if start is None or end is None:
        raise ValueError("no times")
    return start, end, str(caption["line"])
