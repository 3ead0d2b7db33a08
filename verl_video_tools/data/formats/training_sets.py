"""Training sets that are no benchmarks, and the rows of the published forks: read as benchmarks are.

`get_source` also gives the benchmarks themselves, many of which have a split to train on.
"""

from __future__ import annotations

from importlib import import_module

from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.formats import BENCHMARK_NAMES, Benchmark, get_benchmark

_TRAINING_SETS = {
    "framethinker-parquet": "verl_video_tools.data.formats.framethinker_parquet:FrameThinkerParquet",
    "llava-video-178k": "verl_video_tools.data.formats.llava_video:LLaVAVideo",
    "longvt-parquet": "verl_video_tools.data.formats.longvt_parquet:LongVTParquet",
    "video-espresso": "verl_video_tools.data.formats.video_espresso:VideoEspresso",
    "video-r1": "verl_video_tools.data.formats.video_r1:VideoR1",
    "videozoomer-json": "verl_video_tools.data.formats.videozoomer_json:VideoZoomerJSON",
}

SOURCE_NAMES: tuple[str, ...] = tuple(sorted((*BENCHMARK_NAMES, *_TRAINING_SETS)))
"""Formats that `vvt data convert --from` reads."""


def get_source(name: str) -> Benchmark:
    """The reader of a format.

    Raises:
        UsageError: there is none.
    """
    if name in BENCHMARK_NAMES:
        return get_benchmark(name)
    if name not in _TRAINING_SETS:
        raise UsageError(f"there is no format {name!r}; choose one of: {', '.join(SOURCE_NAMES)}")
    module_name, _, class_name = _TRAINING_SETS[name].partition(":")
    source_class: type[Benchmark] = getattr(import_module(module_name), class_name)
    return source_class()
