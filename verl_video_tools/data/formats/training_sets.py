"""Training sets that are no benchmarks, and the rows of the published forks: read as benchmarks are.

`get_source` also gives the benchmarks themselves, many of which have a split to train on.
"""

from __future__ import annotations

from verl_video_tools.data.formats import BENCHMARKS, Benchmark, get_benchmark

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


def get_source(spec: str) -> Benchmark:
    """The reader of a format: of a registered name, or of a Python path such as `my_module:MyBenchmark`.

    Raises:
        UsageError: there is none, or what is there is no reader.
    """
    return get_benchmark(spec, SOURCES, "format")
