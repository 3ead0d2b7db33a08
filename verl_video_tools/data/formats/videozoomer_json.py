"""Training data of VideoZoomer (arXiv 2512.22315).

Format: a JSON list of `problem` (with `<image>` in the place of the video), `solution`, `videos` (one path),
`data_source` and, optionally, `doc_id` and `extra_info`. Read from verl/utils/dataset/multimodal_dataset.py of
github.com/zsgvivo/VideoZoomer, whose YAML files only list such files.
"""

from __future__ import annotations

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import find_moved_video, question_of_text


class VideoZoomerJSON(Benchmark):
    """See the module."""

    name = "videozoomer-json"
    place_field = "doc_id"

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        videos = required(entry, "videos")
        if isinstance(videos, str) or len(videos) != 1:
            raise RowError(f"the field 'videos' must list one video, got {videos!r:.80}")
        return benchmark_row(
            str(entry.get("data_source") or self.name),
            index=str(entry["doc_id"]),
            split="train",
            video_path=find_moved_video(files.videos, str(videos[0])),
            **question_of_text(str(required(entry, "problem")), str(required(entry, "solution"))),
        )
