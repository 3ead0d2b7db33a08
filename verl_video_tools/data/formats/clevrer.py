"""CLEVRER (arXiv 1910.01442): questions about rendered videos of colliding objects.

Format: `train.json`, `validation.json` (`test.json` has no answers), a list of videos with `scene_index`,
`video_filename` and `questions`: each `question_id`, `question`, `question_type` and, if that is descriptive, `answer`
(a word), else `choices`, each `choice_id`, `choice` and `answer` ("correct" or "wrong"). Videos
`video_10000-11000/video_10001.mp4`, or all in one folder. The format is that of the project page and of
executor/run_mc.py in github.com/chuangg/CLEVRER; the folders were read from loaders in public repositories.

Descriptive answers come from small vocabularies (yes and no, colours, shapes, materials), which become the options;
counts become numeric questions. A question with exactly one correct choice becomes a multiple-choice question. A
question with several correct choices is skipped.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats.entries import Entry, required
from verl_video_tools.data.formats.mapped import MappedBenchmark

VOCABULARIES = (
    ("yes", "no"),
    ("blue", "brown", "cyan", "gray", "green", "purple", "red", "yellow"),
    ("cube", "cylinder", "sphere"),
    ("metal", "rubber"),
)

_VIDEOS_PER_FOLDER = 1000


class CLEVRER(MappedBenchmark):
    """See the module."""

    name = "clevrer"
    groupings = ("question_type",)
    questions_field = "questions"
    video_fields = ("video_filename",)
    index = "{stem}_{question_id}"
    split = "train"
    has_split_in_file_name = True
    type_without_options = "numeric"
    videos = ("{folder}/{video_filename}", "{video_filename}")

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """`options` and the letter of the right one, or a count, as the `answer`; and names of the video."""
        video = str(required(entry, "video_filename"))
        options, answer = _choices(entry) if entry.get("choices") else _vocabulary(str(required(entry, "answer")))
        return {"stem": Path(video).stem, "folder": _folder(video), "options": options, "answer": answer}


def _choices(entry: Entry) -> tuple[list[str], str]:
    choices = entry["choices"]
    correct = [number for number, choice in enumerate(choices) if required(choice, "answer") == "correct"]
    if len(correct) != 1:
        raise RowError(f"{len(correct)} of its {len(choices)} choices are correct, so it has no single answer")
    return [str(required(choice, "choice")) for choice in choices], string.ascii_uppercase[correct[0]]


def _vocabulary(answer: str) -> tuple[list[str], str]:
    if answer.isdigit():
        return [], answer
    for words in VOCABULARIES:
        if answer in words:
            return list(words), string.ascii_uppercase[words.index(answer)]
    raise RowError(f"the field 'answer' is none of CLEVRER's words: {answer!r:.80}")


def _folder(video: str) -> str:
    found = re.search(r"\d+", video)
    first = int(found[0]) // _VIDEOS_PER_FOLDER * _VIDEOS_PER_FOLDER if found else 0
    return f"video_{first:05d}-{first + _VIDEOS_PER_FOLDER:05d}"
