"""VideoEspresso (arXiv 2411.14794): 203,000 questions with evidence from core frames, to train on, and a benchmark.

Format: `videoespresso_train_video.json`, a list of `video_path`, `question`, `answer` (a text), `task` and what the
answer was derived from (core frames, `evidence`); the benchmark (`bench_hard.json`) has `options`, "(A): text", and
`correct_answer`, "(A)", instead of `answer`. The benchmark was read from eval/README.md and eval/eval.py of
github.com/hshjerry/VideoEspresso; the training file second-hand, from scripts/prepare_videoespresso_mc_train.py of
github.com/Chenwei-1999/SparseVideoUnderstanding. The version of core frames without videos (`videoespresso_train.json`)
gives no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_video_tools.data.formats.entries import Entry, required
from verl_video_tools.data.formats.mapped import MappedBenchmark


class VideoEspresso(MappedBenchmark):
    """See the module."""

    name = "video-espresso"
    place_field = "number"
    index = "{number}"
    split = "{default_split}"
    has_split_in_file_name = True
    type_without_options = "open"
    videos = ("{video_path}",)
    has_moved_videos = True

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """What differs between the benchmark, which alone has options, and the training file."""
        if entry.get("options"):
            return {"default_split": "test", "answer": required(entry, "correct_answer")}
        return {"default_split": "train", "answer": required(entry, "answer")}
