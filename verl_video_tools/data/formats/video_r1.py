"""Video-R1 (arXiv 2503.21776): 263,000 questions about videos and images from many data sets.

Format: `Video-R1-260k.json`, a list of `problem_id`, `problem`, `data_type` ("video" or "image"), `problem_type`,
`options` (each with its letter), `solution` (between answer tags), `path`, `data_source`; `Video-R1-COT-165k.json` has
`process` as well, reasoning between think tags. Read from the data set's card, src/r1-v/src/open_r1/grpo.py of
github.com/tulerfeng/Video-R1 and converters in other public repositories.

Numerical questions are right or wrong, regression questions score one minus their relative error, as in Video-R1;
OCR and free-form ones need a judge, where Video-R1 compares words. Questions about images are rows for fine-tuning
only.
"""

from __future__ import annotations

from verl_video_tools.core.errors import RowError
from verl_video_tools.core.types import QuestionType
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, MediaKind, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import (
    find_moved_video,
    listed_options,
    reasoned_turn,
    tagged_answer,
    without_media_marks,
)

QUESTION_TYPES: dict[str, QuestionType] = {
    "multiple choice": "mc",
    "numerical": "numeric",
    "regression": "regression",
    "OCR": "open",
    "free-form": "open",
}


class VideoR1(Benchmark):
    """See the module."""

    name = "video-r1"
    has_turns = True

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        if required(entry, "data_type") != "video":
            raise RowError(f"it is about an {entry['data_type']}, not about a video")
        return self._row(entry, files)

    def taught_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """With the published reasoning (`process`) as its only turn; questions about images are rows, too."""
        turn = reasoned_turn(str(required(entry, "process")), str(required(entry, "solution")))
        template = "pictures" if required(entry, "data_type") == "image" else "reasoning"
        return {**self._row(entry, files), "turns": [turn], "template": template}

    def _row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        problem_type = required(entry, "problem_type")
        if problem_type not in QUESTION_TYPES:
            raise RowError(f"the field 'problem_type' must be one of {', '.join(QUESTION_TYPES)}, got {problem_type!r}")
        question_type = QUESTION_TYPES[problem_type]
        kind: MediaKind = "image" if entry["data_type"] == "image" else "video"
        path = find_moved_video(files.videos, str(required(entry, "path")), kind)
        return benchmark_row(
            str(entry.get("data_source") or self.name),
            index=str(required(entry, "problem_id")),
            split="train",
            video_path=path if kind == "video" else None,
            image_paths=[path] if kind == "image" else (),
            question=without_media_marks(str(required(entry, "problem"))),
            options=listed_options(required(entry, "options"), "options") if question_type == "mc" else (),
            truth=tagged_answer(required(entry, "solution")),
            question_type=question_type,
        )
