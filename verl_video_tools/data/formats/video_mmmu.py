"""Video-MMMU (arXiv 2501.13826): 900 questions about lectures, on three tracks: perception, comprehension, adaptation.

Format: the data set lmms-eval/VideoMMMU, folders `Perception`, `Comprehension` and `Adaptation` with parquet files of
`id` (such as "validation_Art_Theory_3"), `question`, `options`, `answer` and, on the last track, `question_type`
("multiple-choice" or "open"). Videos `<discipline>/<id>.mp4`; the image that a question of adaptation is about is
the end of the video. Video-MMMU ranks by the mean of the tracks' accuracies. Read from lmms_eval/tasks/videommmu of
github.com/EvolvingLMMs-Lab/lmms-eval.

Open answers are scored as there, without a judge: by the texts and numbers of their key phrases. One truth of the data
set is a list that breaks off (``['...``): it stays the text that it is, as it does there, and is right only to the
letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Judge, QuestionType
from verl_video_tools.data.extractors.open import OpenAnswerRule
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, benchmark_row, read_entries, required
from verl_video_tools.data.formats.fields import find_first_video, listed_options

TRACKS = ("Perception", "Comprehension", "Adaptation")

DISCIPLINES = {
    "Art": ("Art", "Art_Theory", "Design", "Music"),
    "Business": ("Accounting", "Economics", "Finance", "Manage", "Marketing"),
    "Engineering": (
        "Agriculture",
        "Architecture_and_Engineering",
        "Computer_Science",
        "Electronics",
        "Energy_and_Power",
        "Materials",
        "Mechanical_Engineering",
    ),
    "Humanities": ("History", "Literature", "Psychology", "Sociology"),
    "Medicine": (
        "Basic_Medical_Science",
        "Clinical_Medicine",
        "Diagnostics_and_Laboratory_Medicine",
        "Pharmacy",
        "Public_Health",
    ),
    "Science": ("Biology", "Chemistry", "Geography", "Math", "Physics"),
}
"""Subjects of each discipline; the subject stands in a question's id."""

_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+", re.ASCII)  # as `core.numbers` reads them
_ADAPTATION_NOTE = "The picture that the question is about is shown at the end of the video."
_OTHER_NOTE = "A quiz may be shown at the end of the video; it is not this question."


class VideoMMMU(Benchmark):
    """See the module."""

    name = "video-mmmu"
    published_extractor = "lmms-eval-2025/videommmu"
    groupings = ("track", "discipline")
    group_mean: ClassVar[tuple[str, str] | None] = ("track_mean", "track")
    columns = ("id", "question", "options", "answer", "question_type")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions with their `track`, of a folder of the three, or of files below a folder named after one."""
        files = sorted(annotations.rglob("*.*")) if annotations.is_dir() else [annotations]
        found = [(track, file) for track in TRACKS for file in files if _is_of(file, track)]
        if not found:
            raise UsageError(f"{annotations}: no annotation file lies in a folder {', '.join(TRACKS)}")
        for track, file in found:
            for entry in read_entries(file, self.columns):
                yield {**entry, "track": track} if isinstance(entry, Mapping) else entry

    def judge(self) -> Judge:
        """The official scoring of open answers."""
        return OpenAnswerRule()

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        question_id = str(required(entry, "id"))
        subject = "_".join(question_id.split("_")[1:-1])
        discipline = next((name for name, subjects in DISCIPLINES.items() if subject in subjects), None)
        if discipline is None:
            raise RowError(f"the field 'id' names no subject of Video-MMMU: {question_id!r}")
        is_open = entry.get("question_type") == "open" or not entry.get("options")
        options = () if is_open else listed_options(entry["options"], "options")
        truth = str(required(entry, "answer")).strip()
        note = _ADAPTATION_NOTE if entry["track"] == "Adaptation" else _OTHER_NOTE
        return benchmark_row(
            self.name,
            index=f"{entry['track']}_{question_id}",
            split="test",
            video_path=find_first_video(files.videos, (f"{discipline}/{question_id}", question_id)),
            question=f"{note}\n{required(entry, 'question')}",
            options=options,
            truth=truth,
            question_type=_open_type(truth) if is_open else "mc",
            groups={"track": entry["track"], "discipline": discipline},
        )


def _is_of(file: Path, track: str) -> bool:
    if file.suffix not in (".parquet", ".json", ".jsonl"):
        return False
    return any(track.lower() in name.lower() for name in (file.parent.name, file.stem))


def _open_type(truth: str) -> QuestionType:
    return "numeric" if _NUMBER.fullmatch(truth) else "open"
