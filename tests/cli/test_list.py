"""`vvt list`: every name once, and all about one of them."""

from __future__ import annotations

import pytest

from verl_video_tools.cli.main import run
from verl_video_tools.data.extractors import EXTRACTORS
from verl_video_tools.data.formats import BENCHMARK_NAMES, SOURCE_NAMES
from verl_video_tools.evaluation.protocols import PROTOCOLS
from verl_video_tools.methods import method_names

NAMES = {
    "methods": method_names(),
    "benchmarks": BENCHMARK_NAMES,
    "formats": ("table", *SOURCE_NAMES),
    "protocols": tuple(PROTOCOLS),
    "extractors": tuple(EXTRACTORS),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_every_name_has_a_line(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", kind]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in lines] == list(NAMES[kind])
    assert all(text.strip() and "see the module" not in text.lower() for _, text in lines)


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("benchmarks", "charades-sta", ["charades_sta_test.txt"]),
        ("benchmarks", "lvbench", ["video_info.meta.jsonl", "Extractor: lmms-eval-2025/lvbench"]),
        ("benchmarks", "video-mme", ["videomme/test-00000-of-00001.parquet", "Split: test", "Groups: duration, "]),
        ("formats", "video-r1", ["Video-R1-260k.json"]),
        ("methods", "longvt", ["arXiv 2511.20785"]),
        ("protocols", "videozoomer", ["Method: videozoomer", "Cannot be matched:"]),
        ("extractors", "lmms-eval-2025/lvbench", ["A to D"]),
    ],
)
def test_all_about_a_name(kind: str, name: str, told: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", kind, name]) == 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in told)


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "methods", "zoom"]) == 2
    assert "there is no name 'zoom' among the methods; they are: framethinker, " in capsys.readouterr().err
    assert run(["list", "datasets"]) == 2
