"""NExT-QA (arXiv 2105.08276): questions with five options about causes, times and descriptions in short videos.

Format: `train.csv`, `val.csv`, `test.csv` (or the records of the data set lmms-lab/NExTQA) with `video`, `question`,
`answer` (number of an option from 0), `qid`, `type`, `a0` to `a4`; videos `<video>.mp4`, or in VidOR's folders if
`map_vid_vidorID.json` lies beside the annotations. Results are published for causal, temporal and descriptive
questions, of which each has several types (CW, CH; TN, TC, TP; DC, DL, DO, DB). Read from dataset/ of
github.com/doc-doc/NExT-QA and lmms_eval/tasks/nextqa of github.com/EvolvingLMMs-Lab/lmms-eval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats.entries import (
    Entry,
    ReadEntry,
    load_json,
    read_csv,
    read_entries,
    required,
)
from verl_video_tools.data.formats.mapped import MappedBenchmark

FOLDERS_FILE = "map_vid_vidorID.json"
KINDS = {"C": "causal", "T": "temporal", "D": "descriptive"}
"""Of a question, by the first letter of its type."""


class NExTQA(MappedBenchmark):
    """See the module."""

    name = "next-qa"
    published_extractor = "lmms-eval/nextqa"
    groupings = ("kind", "type")
    index = "{video}_{qid}"
    answer_form = "number"
    split = "train"
    has_split_in_file_name = True
    videos = ("{place|video}", "{video}")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions, with the video's place in VidOR's folders where that is known."""
        beside = annotations.with_name(FOLDERS_FILE)
        places = load_json(beside) if beside.exists() else {}
        for entry in read_csv(annotations) if annotations.suffix == ".csv" else read_entries(annotations):
            if isinstance(entry, Mapping) and (place := places.get(str(entry.get("video")))) is not None:
                yield {**entry, "place": place}
            else:
                yield entry

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The options, each of which has a column, and the `kind` of the question."""
        kind = KINDS.get(str(required(entry, "type"))[0])
        if kind is None:
            raise RowError(f"the field 'type' must begin with C, T or D, got {entry['type']!r:.80}")
        return {"kind": kind, "options": [str(required(entry, f"a{number}")) for number in range(5)]}
