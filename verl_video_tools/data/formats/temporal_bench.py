"""TemporalBench (arXiv 2410.10818): which of two captions, that differ in a detail of time, is a video's?

Format: `temporalbench_short_qa.json` and `temporalbench_long_qa.json` of the data set microsoft/TemporalBench, lists of
`idx`, `video_name` (a path), `question` with its option lines, `GT` (letter), `dataset` or `source_dataset` and, on
short videos, `category`. Videos lie as `video_name` says. Besides the accuracy on questions (binary accuracy) the
share of videos is published of which all questions are answered rightly. Captions, the benchmark's third part, are not
asked for. Read from README.md and get_qa_acc.py of github.com/mu-cai/TemporalBench, and lmms_eval/tasks/temporalbench
of github.com/EvolvingLMMs-Lab/lmms-eval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from verl_video_tools.data.formats.entries import Entry
from verl_video_tools.data.formats.mapped import MappedBenchmark
from verl_video_tools.data.formats.metrics import GradedItem, share_all_right


class TemporalBench(MappedBenchmark):
    """See the module."""

    name = "temporalbench"
    published_extractor = "lmms-eval/temporalbench"
    groupings = ("dataset", "category")
    group_fields: ClassVar[Mapping[str, str]] = {"dataset": "dataset|source_dataset"}
    index = "{idx}"
    has_option_lines = True
    answer = "GT"
    videos = ("{video_name}",)

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """A `category` also for long videos, which have none."""
        return {"category": str(entry.get("category") or "none")}

    def joined_by(self, extra_info: Mapping[str, Any]) -> str | None:
        return str(extra_info["video_path"])

    def metrics(self, items: Sequence[GradedItem]) -> dict[str, float]:
        """`multiple_binary_accuracy`: the share of videos whose questions are all answered rightly."""
        return {"multiple_binary_accuracy": share_all_right(items, self.joined_by)}
