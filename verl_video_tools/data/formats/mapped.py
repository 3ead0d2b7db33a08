"""Benchmarks as a map of fields: the attributes of a class say which field is what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from verl_video_tools.core.errors import RowError
from verl_video_tools.core.types import QuestionType
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import (
    Entry,
    Group,
    ReadEntry,
    Row,
    benchmark_row,
    questions_of_video,
    required,
)
from verl_video_tools.data.formats.fields import (
    find_first_video,
    find_moved_video,
    letter_at,
    letter_of,
    lettered_options,
    listed_options,
    segment,
    split_name,
    split_options,
)
from verl_video_tools.data.formats.subtitles import read_srt, with_subtitles


class MappedBenchmark(Benchmark):
    """A benchmark whose attributes name the fields of an entry.

    A name may list alternatives, `a|b`: the first of these fields that is there and not empty. Templates hold such
    names in braces, `"{video}_{qid}"`. What no attribute can say is a field that `derived` makes.
    """

    questions_field: ClassVar[str | None] = None
    """Field that lists the questions of a video, where the annotations have an entry per video; None: per question."""
    video_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of such an entry that each of its questions gets."""
    index: ClassVar[str] = "{id}"
    """Template of what the benchmark calls the question."""
    question: ClassVar[str] = "{question}"
    """Template of the question, without its options."""
    options: ClassVar[str] = "options"
    """Field of the options, a list or an object with a text for each letter."""
    has_option_lines: ClassVar[bool] = False
    """Where there is no such field, the question ends with a line for each option."""
    type_without_options: ClassVar[QuestionType | None] = None
    """Type of questions that have no options; None: every question must have some."""
    answer: ClassVar[str] = "answer"
    """Field of the answer."""
    answer_form: ClassVar[Literal["letter", "text", "last text", "number"]] = "letter"
    """What the answer gives of the right option: its letter, its text, which another option's letter may equal, or its
    number, from 0. Of several options with the text the first is meant, or the last."""
    videos: ClassVar[tuple[str, ...]] = ("{video}",)
    """Templates of the places below the folder of videos where a video may lie, tried in this order."""
    has_moved_videos: ClassVar[bool] = False
    """The place is a path on another machine: the longest end of it that lies in the folder counts."""
    split: ClassVar[str] = "test"
    """Template of the split's name."""
    has_split_in_file_name: ClassVar[bool] = False
    """The name of the annotation file says which split it is; `split` holds where it does not."""
    segment_fields: ClassVar[tuple[str, str] | None] = None
    """Fields with start and end of the part of the video that shows the answer."""
    group_fields: ClassVar[Mapping[str, str]] = {}
    """Field of each of `groupings` that is not named like its field."""

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """One entry per question; an entry without a list of questions stays as it is."""
        for entry in super().entries(annotations):
            questions = entry.get(self.questions_field) if self.questions_field and isinstance(entry, dict) else None
            if isinstance(entry, dict) and isinstance(questions, list):
                yield from questions_of_video({name: entry.get(name) for name in self.video_fields}, questions)
            else:
                yield entry

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """Further fields for the attributes to name, made from those of the entry: `options` are the texts of options,
        and `type` is the type of a question without any.

        Raises:
            RowError: it cannot be a question.
        """
        return {}

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """One question, after the subtitles in a file named like the video, if they are wanted and the file exists."""
        fields = Fields(entry, self.derived(entry))
        index, split = self.index.format_map(fields), self.split.format_map(fields)
        video_path = self._find_video(fields, files)
        question, options = self._question_and_options(fields)
        if self.has_split_in_file_name:
            split = split_name(files.annotations, split)
        if files.subtitles is not None:
            path = files.subtitles / f"{self.videos[-1].format_map(fields)}.srt"
            question = with_subtitles(question, read_srt(path)) if path.exists() else question
        return benchmark_row(
            self.name,
            index=index,
            split=split,
            video_path=video_path,
            question=question,
            options=options,
            truth=self._truth(fields[self.answer], options),
            question_type="mc" if options else fields.derived.get("type", self.type_without_options),
            video_segment_seconds=segment(*map(fields.get, self.segment_fields)) if self.segment_fields else None,
            groups={name: fields.group(self.group_fields.get(name, name)) for name in self.groupings},
        )

    def _find_video(self, fields: Fields, files: BenchmarkFiles) -> Path:
        places = [template.format_map(fields) for template in self.videos]
        if self.has_moved_videos:
            return find_moved_video(files.videos, places[0])
        return find_first_video(files.videos, places)

    def _question_and_options(self, fields: Fields) -> tuple[str, Sequence[str]]:
        question = self.question.format_map(fields)
        if (options := fields.derived.get("options")) is not None:
            return question, options
        if fields.get(self.options) or not (self.has_option_lines or self.type_without_options):
            options = fields[self.options]
            read = lettered_options if isinstance(options, Mapping) else listed_options
            return question, read(options, self.options)
        if not self.has_option_lines:
            return question, ()
        question, options = split_options(question)
        if not options and self.type_without_options is None:
            raise RowError(
                f"the field 'question' has no option lines such as (A) text, and there is no field {self.options!r}"
            )
        return question, options

    def _truth(self, answer: Any, options: Sequence[str]) -> str:
        if self.answer_form == "number":
            return letter_at(answer, options, self.answer)
        if self.answer_form in ("text", "last text"):
            return letter_of(answer, options, self.answer, takes_last=self.answer_form == "last text")
        return str(answer)


class Fields:
    """The fields of an entry, and those derived from it, for templates: one that is missing or empty is a RowError."""

    def __init__(self, entry: Entry, derived: Mapping[str, Any]) -> None:
        self.entry = entry
        self.derived = derived

    def get(self, name: str) -> Any:
        """The field; None if it is missing."""
        return self.derived[name] if name in self.derived else self.entry.get(name)

    def __getitem__(self, names: str) -> Any:
        for name in names.split("|"):
            if (value := self.get(name)) is not None and value != "":
                return value
        return required(self.entry, *names.split("|"))  # names the missing one

    def group(self, names: str) -> Group:
        """A derived field as it is, one of the annotations as text."""
        return self.derived[names] if names in self.derived else str(self[names])
