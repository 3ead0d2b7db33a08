"""Benchmarks: their published annotation files as our rows. `get_benchmark` gives one by name.

Files and videos are the user's; nothing is downloaded.

benchmarks.py, training_sets.py, dialogues.py  a class for each format
mapped.py                                      formats that are a map of fields
entries.py, fields.py                          annotation files, videos and rows; letters, options, answers, times
subtitles.py                                   subtitles before a question
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import isabstract
from pathlib import Path
from typing import Any, ClassVar

from verl_video_tools.core.config import resolve
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Sample
from verl_video_tools.data.formats.entries import (
    Entry,
    ReadEntry,
    Row,
    error_in_its_file,
    numbered,
    read_entries,
)
from verl_video_tools.data.formats.subtitles import has_subtitles

__all__ = [
    "BENCHMARKS",
    "BENCHMARK_NAMES",
    "SOURCES",
    "SOURCE_NAMES",
    "Benchmark",
    "BenchmarkFiles",
    "get_benchmark",
    "get_source",
    "read_rows",
]

BENCHMARKS = {
    "charades-sta": "verl_video_tools.data.formats.benchmarks:CharadesSTA",
    "clevrer": "verl_video_tools.data.formats.benchmarks:CLEVRER",
    "longvideo-reason": "verl_video_tools.data.formats.benchmarks:LongVideoReason",
    "longvideobench": "verl_video_tools.data.formats.benchmarks:LongVideoBench",
    "lvbench": "verl_video_tools.data.formats.benchmarks:LVBench",
    "mlvu-dev": "verl_video_tools.data.formats.benchmarks:MLVUDev",
    "mlvu-test": "verl_video_tools.data.formats.benchmarks:MLVUTest",
    "mvbench": "verl_video_tools.data.formats.benchmarks:MVBench",
    "video-holmes": "verl_video_tools.data.formats.benchmarks:VideoHolmes",
    "video-mme": "verl_video_tools.data.formats.benchmarks:VideoMME",
    "video-mmlu": "verl_video_tools.data.formats.benchmarks:VideoMMLU",
    "video-mmmu": "verl_video_tools.data.formats.benchmarks:VideoMMMU",
    "videosiah-eval": "verl_video_tools.data.formats.benchmarks:VideoSIAHEval",
}

BENCHMARK_NAMES: tuple[str, ...] = tuple(BENCHMARKS)

TRAINING_SETS = {
    "framethinker-sft": "verl_video_tools.data.formats.dialogues:FrameThinkerSFT",
    "framethinker-parquet": "verl_video_tools.data.formats.training_sets:FrameThinkerParquet",
    "llava-video-178k": "verl_video_tools.data.formats.training_sets:LLaVAVideo",
    "longvt-parquet": "verl_video_tools.data.formats.dialogues:LongVTParquet",
    "messages": "verl_video_tools.data.formats.dialogues:Messages",
    "video-espresso": "verl_video_tools.data.formats.training_sets:VideoEspresso",
    "video-r1": "verl_video_tools.data.formats.training_sets:VideoR1",
    "videozoomer-sft": "verl_video_tools.data.formats.dialogues:VideoZoomerSFT",
    "videozoomer-json": "verl_video_tools.data.formats.training_sets:VideoZoomerJSON",
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
        questions: rows of the same questions, for dialogues that do not name their videos (`dialogues`).
    """

    annotations: Path
    videos: Path | None
    subtitles: Path | None = None
    questions: Path | None = None


class Benchmark(ABC):
    """How to read a benchmark, and which figures to report of results on it."""

    name: ClassVar[str]
    """On the command line, and the `data_source` of its rows."""
    groupings: ClassVar[tuple[str, ...]] = ()
    """Keys of `extra_info.groups` in its rows: accuracy is tabulated by the values of each, in this order of keys and
    with the values in the order of the annotations."""
    published_extractor: ClassVar[str | None] = None
    """Name of the published rule (`data.extractors`) that its answers are also read by; None: there is none."""
    takes_subtitles: ClassVar[bool] = False
    """Its protocol has subtitles: their texts before the question, a line each."""
    has_turns: ClassVar[bool] = False
    """Its questions come with an assistant's turns, for fine-tuning: `sft_row` makes rows of them."""
    columns: ClassVar[tuple[str, ...] | None] = None
    """Columns to read of a parquet file, as far as it has them, so that images stay unread; None: all."""
    place_field: ClassVar[str | None] = None
    """Field that an entry gets with its place in the file, from 0, if it has no such field; for questions without a
    name."""
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

    def sft_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
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

    def metrics(self, sample: Sample, answer: str | None) -> dict[str, float]:
        """Figures of an answer beyond right and wrong, each from 0 to 1, under the same names for any answer. Results
        have their means."""
        return {}


def get_benchmark(spec: str, registered: Mapping[str, str] = BENCHMARKS, kind: str = "benchmark") -> Benchmark:
    """The benchmark of a registered name, or of a Python path such as `my_module:MyBenchmark`.

    Raises:
        UsageError: there is none, or what is there is no benchmark.
    """
    benchmark = resolve(spec, registered, kind)
    is_benchmark = isinstance(benchmark, type) and issubclass(benchmark, Benchmark)
    if not is_benchmark or isabstract(benchmark) or not hasattr(benchmark, "name"):
        raise UsageError(
            f"the {kind} {spec!r} must be a subclass of Benchmark with `name` and `row`, got {benchmark!r:.80}"
        )
    return benchmark()


def get_source(spec: str) -> Benchmark:
    """The reader of a format: of a registered name, or of a Python path such as `my_module:MyBenchmark`.

    Raises:
        UsageError: there is none, or what is there is no reader.
    """
    return get_benchmark(spec, SOURCES, "format")


def read_rows(
    benchmark: Benchmark, files: BenchmarkFiles, *, with_responses: bool = False
) -> Iterator[tuple[int, Row | RowError]]:
    """Each entry's place in the annotations, from 0, with its row, or with what is wrong with it.

    Args:
        with_responses: rows for fine-tuning (`Benchmark.sft_row`).

    Raises:
        UsageError: the annotations cannot be read, the folder of videos or subtitles does not exist, the benchmark has
            no subtitles, or, after the last entry, no row got any of those that were asked for.
    """
    for folder in (files.videos, files.subtitles):
        if folder is not None and not folder.is_dir():
            raise UsageError(f"{folder}: no such folder")
    if files.subtitles is not None and not benchmark.takes_subtitles:
        raise UsageError(f"{benchmark.name} has no subtitles")
    num_rows = num_with_subtitles = 0
    for number, entry in enumerate(benchmark.entries(files.annotations)):
        row = _row_or_error(benchmark, entry, files, with_responses)
        if files.subtitles is not None and not isinstance(row, RowError):
            num_rows += 1
            num_with_subtitles += has_subtitles(row)
        yield number, row
    if num_rows and not num_with_subtitles:  # some videos may have none, but not all
        raise UsageError(
            f"{files.subtitles}: holds subtitles of none of {num_rows} questions; give the folder where those of the "
            f"videos lie, named as `vvt list formats {benchmark.name}` says, or ask without --subtitles"
        )


def _row_or_error(benchmark: Benchmark, entry: Any, files: BenchmarkFiles, with_responses: bool) -> Row | RowError:
    if isinstance(entry, RowError):
        return entry
    if not isinstance(entry, Mapping):
        return RowError(f"an entry is an object with named fields, got {entry!r:.80}")
    try:
        row = (benchmark.sft_row if with_responses else benchmark.row)(entry, files)
        json.dumps(row, ensure_ascii=False, default=str).encode()
        return row
    except RowError as error:
        return error_in_its_file(error, entry)
    except UnicodeEncodeError as error:  # bytes that are not UTF-8, or half of a surrogate pair that JSON escapes
        context = error.object[max(0, error.start - 20) : error.end + 20]
        return RowError(f"its text is not UTF-8: {context!r}; save the annotations as UTF-8")
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # a field of another type than published
        return RowError(f"the entry is not in the format of {benchmark.name}: {error!r}; it is {entry!r:.200}")
