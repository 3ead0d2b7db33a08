"""Video-MMLU (arXiv 2504.14693): open questions on 1065 lectures in mathematics, physics and chemistry.

Format: the data set Enxin/Video-MMLU, `Video_MMLU_QA.tsv`, a table of `index`, `video`, `question`, `answer`,
`discipline` (Math, Physics, Chemistry); or records of `video_name`, `question`, `answer`. Where these have no
`discipline`, `video_sources.jsonl` beside them gives it, with `video_id` and `label` on each line. Videos
`youtube_videos/<video>`. Descriptions of the lectures, the benchmark's other half, are not asked for. Results are
published as the mean of the disciplines' accuracies. Read from VLMEvalKit/vlmeval/dataset/video_mmlu.py,
lmms-eval/lmms_eval/tasks/videommlu and post_eval/ of github.com/Espere-1119-Song/Video-MMLU; the columns second-hand,
from that code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.data.formats.entries import Entry, ReadEntry, numbered, read_csv, read_entries
from verl_video_tools.data.formats.mapped import MappedBenchmark

SOURCES_FILE = "video_sources.jsonl"


class VideoMMLU(MappedBenchmark):
    """See the module."""

    name = "video-mmlu"
    groupings = ("discipline",)
    group_mean = ("discipline_mean", "discipline")
    index = "{index}"
    question = "{question}\nAnswer in one sentence."
    type_without_options = "open"
    videos = ("youtube_videos/{video|video_name}", "{video|video_name}")
    judge_prompt = "video_mmlu_judge.txt"

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions with their `discipline`, and their place as `index` where they have none."""
        labels = _labels(annotations.with_name(SOURCES_FILE))
        entries = read_csv(annotations, "\t") if annotations.suffix == ".tsv" else read_entries(annotations)
        for entry in numbered(entries, "index"):
            if isinstance(entry, Mapping) and not entry.get("discipline"):
                video = Path(str(entry.get("video") or entry.get("video_name"))).stem
                yield {**entry, "discipline": labels.get(video)}
            else:
                yield entry

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The discipline in one spelling: files write it with a capital letter and without."""
        return {"discipline": str(entry["discipline"]).capitalize()} if entry.get("discipline") else {}


def _labels(path: Path) -> dict[str, str]:
    """The discipline of each video, where the file is there."""
    if not path.exists():
        return {}
    return {
        str(line.get("video_id")): str(line.get("label")) for line in read_entries(path) if isinstance(line, Mapping)
    }
