"""Every benchmark's sample through `vvt eval`: read, asked, graded by its rule or a judge, told in its own figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chat_server import scripted
from tests.data.format_cases import CASES, prepare
from tests.judge_server import JudgeServer, compared
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import BENCHMARK_NAMES, BenchmarkFiles, get_benchmark, read_rows

pytest.importorskip("openai", reason="the extra `judge` is not installed")

FIGURES = {
    "charades-sta": {"R@0.3": 1.0, "R@0.5": 1.0, "R@0.7": 1.0, "mIoU": 1.0},  # of a single question
    "mlvu-dev": {"m_avg": 0.5},
    "mlvu-test": {"m_avg": 0.5},
    "mvbench": {"task_mean": 0.5},
    "video-mmlu": {"discipline_mean": 0.5},
    "video-mmmu": {"track_mean": 0.5},  # of three questions
}
"""Beyond accuracy, where the first answer is right and the others are wrong."""
COUNTS = {
    "items",
    "failed",
    "accuracy",
    "partial",
    "frames",
    "unread",
    "differing",
    "visual_tokens",
    "videos",
    "intervals",
}


@pytest.fixture
def files(name: str, request: pytest.FixtureRequest, tmp_path: Path, make_video: MakeVideo) -> BenchmarkFiles:
    """The sample with videos that can be read."""
    if name == "video-mme":
        files = request.getfixturevalue("video_mme")
        return BenchmarkFiles(annotations=files.annotations, videos=files.videos)
    files = prepare(CASES[name], tmp_path)
    for video in CASES[name].videos:
        path = files.videos / video
        path.unlink()
        path.symlink_to(make_video(100))
    return files


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARK_NAMES)
def test_a_sample_gives_a_result(name: str, files: BenchmarkFiles, tmp_path: Path) -> None:
    benchmark = get_benchmark(name)
    read = [row for _, row in read_rows(benchmark, files)]
    rows = [row for row in read if not isinstance(row, RowError)]
    answers = [rows[0]["reward_model"]["ground_truth"], *["Z"] * (len(rows) - 1)]
    scripts = {
        row["extra_info"]["question"]: [f"<answer>{answer}</answer>"] for row, answer in zip(rows, answers, strict=True)
    }
    out = tmp_path / "out"
    with JudgeServer(reply=scripted(scripts)) as server, JudgeServer(reply=compared) as judge:
        endpoints = [f"--base-url={server.base_url}", f"--judge-base-url={judge.base_url}"]
        paths = [f"--annotations={files.annotations}", f"--videos={files.videos}", f"--out={out}"]
        method = ["--method=direct", "--set=initial_frames=2"]
        assert run(["eval", f"--benchmark={name}", *method, *paths, *endpoints]) == 0
    result = json.loads((out / "results.json").read_text())
    overall = result["overall"]
    num_faults = len(read) - len(rows)
    assert (overall["items"], overall["failed"]) == (len(read), num_faults) == (len(read), len(result["failures"]))
    assert overall["accuracy"] == 1 / len(rows)
    figures = {figure for figure in overall.keys() - COUNTS if not figure.endswith("_published")}
    assert {figure: overall[figure] for figure in figures} == FIGURES.get(name, {})
    published = {f"{figure}_published" for figure in ("accuracy", "unread", *figures)}
    assert {figure for figure in overall if figure.endswith("_published")} == (
        published if benchmark.published_extractor else set()
    )
    assert list(result["groups"]) == list(benchmark.groupings)
    assert result["protocol"]["benchmark"] == name
    for values in result["groups"].values():
        assert all(figures.keys() == overall.keys() for figures in values.values())
    assert set(overall) - {"items", "failed", "intervals"} <= set(
        (out / "table.csv").read_text().splitlines()[0].split(",")
    )
