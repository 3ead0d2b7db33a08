"""Benchmarks: their published annotation files as our rows. `get_benchmark` gives one by name.

Files and videos are the user's; nothing is downloaded. A benchmark is a class: those that are a map of
fields stand together in `plain`, others have a module of their own. What several need is in `mapped`
(rows by a map of fields), `entries` (annotation files, videos, rows), `fields` (letters, options, times), `subtitles`
and `metrics`.
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isabstract
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from verl_video_tools.core.config import resolve
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import AnswerLabel, Judge, Sample
from verl_video_tools.data.formats.entries import (
    Entry,
    Group,
    ReadEntry,
    Row,
    error_in_its_file,
    numbered,
    read_entries,
)
from verl_video_tools.data.formats.subtitles import SubtitleForm, asked_with_subtitles

__all__ = [
    "BENCHMARKS",
    "BENCHMARK_NAMES",
    "SOURCES",
    "SOURCE_NAMES",
    "Benchmark",
    "BenchmarkFiles",
    "GradedItem",
    "Prediction",
    "Submission",
    "get_benchmark",
    "get_source",
    "read_rows",
]

BENCHMARKS = {
    "charades-sta": "verl_video_tools.data.formats.charades_sta:CharadesSTA",
    "clevrer": "verl_video_tools.data.formats.clevrer:CLEVRER",
    "dream-1k": "verl_video_tools.data.formats.dream_1k:DREAM1K",
    "longvideo-reason": "verl_video_tools.data.formats.longvideo_reason:LongVideoReason",
    "longvideobench": "verl_video_tools.data.formats.longvideobench:LongVideoBench",
    "lvbench": "verl_video_tools.data.formats.plain:LVBench",
    "mlvu-dev": "verl_video_tools.data.formats.plain:MLVUDev",
    "mlvu-test": "verl_video_tools.data.formats.plain:MLVUTest",
    "mvbench": "verl_video_tools.data.formats.mvbench:MVBench",
    "video-holmes": "verl_video_tools.data.formats.plain:VideoHolmes",
    "video-mme": "verl_video_tools.data.formats.plain:VideoMME",
    "video-mmlu": "verl_video_tools.data.formats.video_mmlu:VideoMMLU",
    "video-mmmu": "verl_video_tools.data.formats.video_mmmu:VideoMMMU",
    "videosiah-eval": "verl_video_tools.data.formats.plain:VideoSIAHEval",
}

BENCHMARK_NAMES: tuple[str, ...] = tuple(BENCHMARKS)

TRAINING_SETS = {
    "framethinker-sft": "verl_video_tools.data.formats.framethinker_sft:FrameThinkerSFT",
    "framethinker-parquet": "verl_video_tools.data.formats.framethinker_parquet:FrameThinkerParquet",
    "llava-video-178k": "verl_video_tools.data.formats.llava_video:LLaVAVideo",
    "longvt-parquet": "verl_video_tools.data.formats.longvt_parquet:LongVTParquet",
    "video-espresso": "verl_video_tools.data.formats.plain:VideoEspresso",
    "video-r1": "verl_video_tools.data.formats.video_r1:VideoR1",
    "videobrain-sft": "verl_video_tools.data.formats.videobrain_sft:VideoBrainSFT",
    "videozoomer-sft": "verl_video_tools.data.formats.videozoomer_sft:VideoZoomerSFT",
    "videozoomer-json": "verl_video_tools.data.formats.videozoomer_json:VideoZoomerJSON",
}

SOURCES = dict(sorted({**BENCHMARKS, **TRAINING_SETS}.items()))
"""Formats that `vvt data convert --from` reads."""

SOURCE_NAMES: tuple[str, ...] = tuple(SOURCES)


@dataclass(frozen=True, kw_only=True)
class BenchmarkFiles:
    """What the user brings.

    Attributes:
        annotations: the published file, or the folder of them, of one split.
        videos: the folder that the annotations' names of videos lie in; None: the videos are not at hand, and rows have
            their names as they are.
        subtitles: folder of subtitles; None asks without them.
        subtitle_frames: of the subtitles, only those shown at so many moments spread evenly over the video; None: all.
        questions: rows of the same questions, for dialogues that do not name their videos (`dialogues`).
    """

    annotations: Path
    videos: Path | None
    subtitles: Path | None = None
    subtitle_frames: int | None = None
    questions: Path | None = None


@dataclass(frozen=True, slots=True)
class GradedItem:
    """A finished item, as the metrics of a benchmark need it. Failed items are none.

    Attributes:
        answer: text of the answer; None if the model gave none.
        repeat: which time it was that the item was asked, from 0.
    """

    sample: Sample
    answer: str | None
    label: AnswerLabel
    repeat: int = 0

    @property
    def groups(self) -> Mapping[str, Group]:
        """The item's value, or values, of each of the benchmark's `groupings`."""
        groups: Mapping[str, Group] = self.sample.extra_info.get("groups") or {}
        return groups


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model said to a question that is not graded here.

    Attributes:
        answer: None if it gave none, or the item failed.
    """

    sample: Sample
    answer: str | None


class Submission(NamedTuple):
    """A file for the code that grades a benchmark."""

    name: str
    content: str


class Benchmark(ABC):
    """How to read a benchmark, and which figures to report of results on it."""

    name: ClassVar[str]
    """On the command line, and the `data_source` of its rows."""
    groupings: ClassVar[tuple[str, ...]] = ()
    """Keys of `extra_info.groups` in its rows: accuracy is tabulated by the values of each, in this order of keys and
    with the values in the order of the annotations."""
    published_extractor: ClassVar[str | None] = None
    """Name of the published rule (`data.extractors`) that its answers are also read by; None: there is none."""
    subtitle_form: ClassVar[SubtitleForm | None] = None
    """How it shows subtitles; None: its protocol has none."""
    has_turns: ClassVar[bool] = False
    """Its questions come with an assistant's turns, for fine-tuning: `taught_row` makes rows of them."""
    has_found_frames: ClassVar[bool] = False
    """Those turns find frames by text: `taught_row` gives `retrieved_frames`, too."""
    columns: ClassVar[tuple[str, ...] | None] = None
    """Columns to read of a parquet file, as far as it has them, so that images stay unread; None: all."""
    place_field: ClassVar[str | None] = None
    """Field that an entry gets with its place in the file, from 0, if it has no such field; for questions without a
    name."""
    is_graded: ClassVar[bool] = True
    """False: its questions are only asked; others' code grades what was answered (`submission`)."""
    judge_prompt: ClassVar[str | None] = None
    """File beside the benchmark's module with the judge's instructions, unless the user gives others (docs/judge.md);
    None: the packaged ones."""
    group_mean: ClassVar[tuple[str, str] | None] = None
    """A metric that is the mean of the accuracies of the groups of one grouping: its name, and the grouping."""

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions as the annotations have them, one mapping each, in a fixed order; read lazily where possible.
        What cannot be read, or is no mapping, is given in its place and reported by `read_rows`.

        The default reads one .parquet, .json (a list) or .jsonl file.

        Raises:
            UsageError: the file cannot be read, or is another one.
        """
        entries = read_entries(annotations, self.columns)
        return entries if self.place_field is None else numbered(entries, self.place_field)

    @abstractmethod
    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """One question as a row (docs/rows.md), best made by `entries.benchmark_row`.

        Raises:
            RowError: the entry lacks something, or its video (`entries.find_video`) or subtitles are missing.
        """

    def taught_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """One question as a row for fine-tuning (docs/cold-start.md): a row with `turns` and `template`, which may be
        about images instead of a video.

        Raises:
            RowError: as `row`, or there is nothing to learn.
        """
        raise RowError(f"{self.name} does not tell how its questions were answered")

    def judge_prompt_file(self) -> str | None:
        """Path of `judge_prompt`."""
        if self.judge_prompt is None:
            return None
        return str(Path(inspect.getfile(type(self))).with_name(self.judge_prompt))

    def judge(self) -> Judge | None:
        """A rule that grades the benchmark's open questions, as that for grounding (`video_segment`); None: they need
        a language model."""
        return None

    def submission(self, predictions: Sequence[Prediction]) -> Submission | None:
        """What was answered as the file that its own code grades; None for a benchmark that is graded here.

        Args:
            predictions: in the order of the annotations, at least one.
        """
        return None

    def metrics(self, items: Sequence[GradedItem]) -> dict[str, float]:
        """Figures beyond accuracy, under the same names for any items; asked for all items and for each group. NaN is
        left out.

        Args:
            items: at least one.
        """
        if self.group_mean is None:
            return {}
        name, grouping = self.group_mean
        right: dict[str, list[bool]] = defaultdict(list)
        for item in items:
            right[str(item.groups[grouping])].append(item.label is AnswerLabel.CORRECT)
        return {name: fmean(fmean(group) for group in right.values())}


def get_benchmark(spec: str, registered: Mapping[str, str] = BENCHMARKS, kind: str = "benchmark") -> Benchmark:
    """The benchmark of a registered name, or of a Python path such as `my_module:MyBenchmark`.

    Raises:
        UsageError: there is none, or what is there is no benchmark.
    """
    found = resolve(spec, registered, kind)
    is_benchmark = isinstance(found, type) and issubclass(found, Benchmark)
    if not is_benchmark or isabstract(found) or not hasattr(found, "name"):
        raise UsageError(
            f"the {kind} {spec!r} must be a subclass of Benchmark with `name` and `row`, got {found!r:.80}"
        )
    return found()


def get_source(spec: str) -> Benchmark:
    """The reader of a format: of a registered name, or of a Python path such as `my_module:MyBenchmark`.

    Raises:
        UsageError: there is none, or what is there is no reader.
    """
    return get_benchmark(spec, SOURCES, "format")


def read_rows(
    benchmark: Benchmark, files: BenchmarkFiles, *, taught: bool = False
) -> Iterator[tuple[int, Row | RowError]]:
    """Each entry's place in the annotations, from 0, with its row, or with what is wrong with it.

    Args:
        taught: rows for fine-tuning (`Benchmark.taught_row`).

    Raises:
        UsageError: the annotations cannot be read, the folder of videos or subtitles does not exist, the benchmark has
            no subtitles, or, after the last entry, no row got any of those that were asked for.
    """
    for folder in (files.videos, files.subtitles):
        if folder is not None and not folder.is_dir():
            raise UsageError(f"{folder}: no such folder")
    if files.subtitles is not None and benchmark.subtitle_form is None:
        raise UsageError(f"{benchmark.name} has no subtitles")
    num_rows = num_with_subtitles = 0
    for number, entry in enumerate(benchmark.entries(files.annotations)):
        row = _row_or_error(benchmark, entry, files, taught)
        if files.subtitles is not None and not isinstance(row, RowError):
            num_rows += 1
            num_with_subtitles += asked_with_subtitles(row)
        yield number, row
    if num_rows and not num_with_subtitles:  # some videos may have none, but not all
        raise UsageError(
            f"{files.subtitles}: holds subtitles of none of {num_rows} questions; give the folder where those of the "
            f"videos lie, named as `vvt list formats {benchmark.name}` says, or ask without --subtitles"
        )


def _row_or_error(benchmark: Benchmark, entry: Any, files: BenchmarkFiles, taught: bool) -> Row | RowError:
    if isinstance(entry, RowError):
        return entry
    if not isinstance(entry, Mapping):
        return RowError(f"an entry is an object with named fields, got {entry!r:.80}")
    try:
        row = (benchmark.taught_row if taught else benchmark.row)(entry, files)
        json.dumps(row, ensure_ascii=False, default=str).encode()
        return row
    except RowError as error:
        return error_in_its_file(error, entry)
    except UnicodeEncodeError as error:  # bytes that are not UTF-8, or half of a surrogate pair that JSON escapes
        context = error.object[max(0, error.start - 20) : error.end + 20]
        return RowError(f"its text is not UTF-8: {context!r}; save the annotations as UTF-8")
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # a field of another type than published
        return RowError(f"the entry is not in the format of {benchmark.name}: {error!r}; it is {entry!r:.200}")
