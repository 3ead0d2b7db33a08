"""TempCompass (arXiv 2403.00476): actions, directions, speeds, orders and changes in short videos, asked in three ways.

Format: the folder `questions` with `multi-choice.json`, `yes_no.json` and `caption_matching.json`, each an object by
video and aspect ("action", "direction", "speed", "order", "attribute_change") of lists of `question` and `answer`. The
first have option lines, and the answer is one; the last name their two captions ("Option 1: ...", "Caption A: ..."),
and the answer is one with its name; yes and no become options. Videos `<video>.mp4`. Captions, the benchmark's fourth
part, are not asked for: a model answers questions from them. Read from questions/ and eval_*.py of
github.com/llyx97/TempCompass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.data.formats.entries import Entry, ReadEntry, load_json, numbered, questions_of_video, required
from verl_video_tools.data.formats.fields import letter_of, split_options
from verl_video_tools.data.formats.mapped import MappedBenchmark

TASKS = ("multi-choice", "yes_no", "caption_matching")


class TempCompass(MappedBenchmark):
    """See the module."""

    name = "tempcompass"
    published_extractor = "lmms-eval/tempcompass"
    groupings = ("task", "aspect")
    index = "{task}_{video}_{aspect}_{place}"
    question = "{asked}"
    videos = ("{video}",)

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions of the folder's files, or of one of them, with `task`, `video`, `aspect` and their place."""
        files = [annotations] if annotations.is_file() else [annotations / f"{task}.json" for task in TASKS]
        files = [file for file in files if file.stem in TASKS and file.exists()]
        if not files:
            raise UsageError(f"{annotations}: holds none of the annotation files {', '.join(TASKS)} (.json)")
        for file in files:
            videos = load_json(file)
            if not isinstance(videos, Mapping):
                raise UsageError(f"cannot read annotations from {file}: expected an object with an entry per video")
            for video, aspects in videos.items():
                if not isinstance(aspects, Mapping):
                    yield RowError(f"the video {video!r} of {file.name} is an object by aspects, got {aspects!r:.80}")
                    continue
                for aspect, questions in aspects.items():
                    fields = {"task": file.stem, "video": video, "aspect": aspect}
                    yield from numbered(questions_of_video(fields, questions), "place")

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The question that is `asked`, its `options`, and the letter of the right one as the `answer`."""
        question, answer = str(required(entry, "question")), str(required(entry, "answer")).strip()
        if entry["task"] == "multi-choice":
            asked, options = split_options(question)
        elif entry["task"] == "yes_no":
            asked, options = question, ["yes", "no"]
        else:
            asked, *lines = question.splitlines()
            options = [line.partition(": ")[2] for line in lines]
            answer = answer.partition(": ")[2]
        if len(options) < 2:
            raise RowError(f"the question does not end with its options: {question!r:.200}")
        return {"asked": asked, "options": options, "answer": letter_of(answer, options, "answer")}
