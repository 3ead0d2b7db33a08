"""Rows of the training code of FrameThinker (arXiv 2509.24304) and VideoBrain (arXiv 2602.04094).

Format: parquet with `data_source` (which only chooses a reward there), `prompt` and `images` (the initial frames as
PNG), `env_name`, `reward_model.ground_truth` and `extra_info`: `question` with its option lines, `video_path`, `fps`,
`total_frames`, `height`, `width`, `index`, `split`; VideoBrain's also `question_type` ("mc" or "oe") and
`classification` (a letter). Read from issue 4 of github.com/lcqysl/FrameThinker, its
verl/utils/dataset/rl_dataset.py, and the same file of github.com/junbo-zou/VideoBrain.

Images are not read: our loop samples the initial frames itself. Frame rate, length and size are facts of the file.
"""

from __future__ import annotations

from verl_video_tools.core.choices import canonical_letter
from verl_video_tools.core.errors import RowError
from verl_video_tools.core.types import QuestionType
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import find_moved_video, split_options, truth_and_type

_QUESTION_TYPES: dict[str, QuestionType] = {"mc": "mc", "oe": "open"}


class FrameThinkerParquet(Benchmark):
    """See the module."""

    name = "framethinker-parquet"
    columns = ("reward_model", "extra_info")

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        extra_info = required(entry, "extra_info")
        reward_model = required(entry, "reward_model")
        question, options = split_options(str(required(extra_info, "question")))
        truth = str(required(reward_model, "ground_truth")).strip()
        given = extra_info.get("question_type")
        if given and given not in _QUESTION_TYPES:
            raise RowError(f"the field 'question_type' must be mc or oe, got {given!r}")
        letter, likely_type = truth_and_type(truth, options if canonical_letter(truth, options) else ())
        question_type = _QUESTION_TYPES[given] if given else likely_type
        row = benchmark_row(
            self.name,
            index=str(extra_info.get("index", "")),
            split=str(extra_info.get("split") or "train"),
            video_path=find_moved_video(files.videos, str(required(extra_info, "video_path"))),
            question=question if question_type == "mc" else str(extra_info["question"]),
            options=options if question_type == "mc" else (),
            truth=letter if question_type == "mc" else truth,
            question_type=question_type,
        )
        if extra_info.get("classification"):
            row["extra_info"]["classification"] = str(extra_info["classification"])
        return row
