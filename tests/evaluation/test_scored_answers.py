"""MLVU's G-Avg: answers with two scores of a judge instead of a label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import scripted
from tests.data.format_cases import CASES, prepare
from tests.evaluation.eval_command import result_of
from tests.judge_server import JudgeServer, Reply, completion
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.types import Sample
from verl_video_tools.data.formats import GradedItem, get_benchmark
from verl_video_tools.evaluation.uncertainty.results import metric_intervals
from verl_video_tools.services.judge.rubrics import read_scores

pytest.importorskip("openai", reason="the extra `judge` is not installed")

SCRIPTS = {"crusher": "She clears {it}.", "gate": "", "ferry": "A ferry is loaded.", "lathe": "label: correct"}
SCORES = {
    "clears": {"accuracy": 4, "relevance": 5},
    "ferry": {"completeness": 2, "reliability": 4},
    "label": {"completeness": 1, "reliability": 3},
}
"""The empty answer gets 1 and 1. Scenes: (4 + 1) / 2 + (5 + 1) / 2 = 5.5; summaries: 1.5 + 3.5 = 5; G-Avg 5.25."""


def scored(request: dict[str, Any]) -> Reply:
    answer = json.loads(request["messages"][1]["content"])["answer"]
    return completion(json.dumps(next(scores for word, scores in SCORES.items() if word in answer)))


@pytest.fixture
def line(tmp_path: Path, make_video: MakeVideo) -> list[str]:
    case = CASES["mlvu-dev-generation"]
    files = prepare(case, tmp_path)
    assert files.videos is not None
    for video in case.videos:
        (files.videos / video).unlink()
        (files.videos / video).symlink_to(make_video(100))
    paths = [f"--annotations={files.annotations}", f"--videos={files.videos}"]
    return ["eval", f"--benchmark={case.name}", "--method=direct", "--set=initial_frames=2", *paths]


def model() -> JudgeServer:
    return JudgeServer(reply=scripted({word: [f"<answer>{text}</answer>"] for word, text in SCRIPTS.items()}))


def test_g_avg_is_the_mean_of_the_tasks_sums_of_means(
    line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with model() as server, JudgeServer(reply=scored) as judge:
        urls = [f"--base-url={server.base_url}", f"--judge-base-url={judge.base_url}"]
        assert run([*line, *urls, f"--out={out}", "--repeats=2", "--concurrency=1"]) == 0
        asked = [request["messages"] for request in judge.requests]
        assert {request["temperature"] for request in judge.requests} == {0}
    result = result_of(out)
    overall, tasks = result["overall"], result["groups"]["task"]
    assert (overall["items"], overall["failed"], overall["g_avg"]) == (5, 1, 5.25)  # one entry has no scoring points
    assert {task: figures["g_avg"] for task, figures in tasks.items()} == {"sub_scene": 5.5, "summary": 5.0}
    assert overall["accuracy"] is overall["partial"] is None and result["repeats"]["accuracy"] == [None, None]
    assert result["graded_by"] == {"judge": 6, "rule for open": 2}
    shown = capsys.readouterr().out
    assert "| 5.25 [too few] |" in shown and "| task | sub_scene | 5.50 (2) |" in " ".join(shown.split())
    lines = [json.loads(text) for text in (out / "items.jsonl").read_text().splitlines()]
    assert [each["scores"] for each in lines[::2]] == [
        SCORES["clears"],
        {"accuracy": 1, "relevance": 1},
        SCORES["ferry"],
        SCORES["label"],
    ]
    assert all(each["label"] is None for each in lines)
    told = {messages[0]["content"]: json.loads(messages[1]["content"]) for messages in asked}
    scene, summary = sorted(told, key=lambda text: "completeness" in text)
    assert "scoring points" in scene and '{"accuracy": 4, "relevance": 3}' in scene
    assert told[scene] == {
        "question": "What does the woman do at the crusher?",
        "reference": "stops the belt\ntakes out a branch",
        "answer": "She clears (it).",
    }
    assert "cost nothing" in summary and told[summary].keys() == {"reference", "answer"}


def test_the_published_mean_of_two_tasks() -> None:
    """MLVU's README: 5.63 and 3.18."""
    items = [
        GradedItem(sample(task, number), "An answer.", None, scores={"first": total // 2, "second": total - total // 2})
        for task, totals in (("sub_scene", [5] * 37 + [6] * 63), ("summary", [3] * 82 + [4] * 18))
        for number, total in enumerate(totals)
    ]
    benchmark = get_benchmark("mlvu-dev-generation")
    assert benchmark.metrics(items)["g_avg"] == pytest.approx((5.63 + 3.18) / 2)
    assert benchmark.metrics(items[:100])["g_avg"] == pytest.approx(5.63)
    low, high = metric_intervals(items, benchmark)["g_avg"] or (0, 0)
    assert 4.3 < low < 4.405 < high < 4.5, "a mean of scores, no share"


def sample(task: str, number: int) -> Sample:
    info = {"question": "?", "video_path": f"{number}.mp4", "question_type": "open", "groups": {"task": task}}
    return Sample.from_row({"extra_info": info, "reward_model": {"ground_truth": "A ferry."}})


UNREADABLE = [
    '{"label": "correct"}',
    "4 and 3",
    '{"completeness": 2}',
    '{"completeness": 2, "reliability": 6}',
    '{"completeness": 2, "reliability": true}',
    '{"completeness": 2, "reliability": 4, "overall": 5}',
    'Well: {"completeness": 2, "reliability": 4}',
]


@pytest.mark.parametrize("reply", UNREADABLE)
def test_unreadable_scores(reply: str) -> None:
    with pytest.raises(JudgeError, match="no readable scores"):
        read_scores(reply, ("completeness", "reliability"))


@pytest.mark.slow
def test_an_item_with_unreadable_scores_failed_and_is_asked_again(line: list[str], tmp_path: Path) -> None:
    def hesitant(request: dict[str, Any]) -> Reply:
        return completion(UNREADABLE[0]) if "loaded" in request["messages"][1]["content"] else scored(request)

    out, whole = tmp_path / "out", tmp_path / "whole"
    with model() as server:
        options = [*line, f"--base-url={server.base_url}", "--model=comparing-judge"]
        with JudgeServer(reply=hesitant) as judge:
            assert run([*options, f"--judge-base-url={judge.base_url}", f"--out={out}"]) == 0
            reminded = [
                request["messages"][-1]["content"] for request in judge.requests if len(request["messages"]) > 2
            ]
        result = result_of(out)
        assert [failure["flags"] for failure in result["failures"]] == [["row_error"], ["judge"]]
        assert result["overall"]["g_avg"] == (5.5 + 4.0) / 2, "without the failed summary"
        assert all('{"completeness": 3, "reliability": 3}' in text for text in reminded) and reminded
        with JudgeServer(reply=scored) as judge:
            num_asked = len(server.requests)
            assert run([*options, f"--judge-base-url={judge.base_url}", f"--out={out}"]) == 0
            assert (len(server.requests) - num_asked, len(judge.requests)) == (1, 1)
            assert run([*options, f"--judge-base-url={judge.base_url}", f"--out={whole}"]) == 0
    for name in ("results.json", "items.jsonl"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_scores_are_kept_for_the_next_run(line: list[str], tmp_path: Path) -> None:
    cache = f"--judge=cache_dir={tmp_path / 'verdicts'}"
    with model() as server, JudgeServer(reply=scored) as judge:
        urls = [f"--base-url={server.base_url}", f"--judge-base-url={judge.base_url}", cache]
        assert run([*line, *urls, f"--out={tmp_path / 'out'}"]) == 0
        num_asked = len(judge.requests)
        assert num_asked == 3
        assert run([*line, *urls, f"--out={tmp_path / 'again'}"]) == 0
        assert len(judge.requests) == num_asked
    assert result_of(tmp_path / "again") == result_of(tmp_path / "out")
    folders = [str(tmp_path / name) for name in ("out", "again")]
    assert run(["eval-table", *folders, f"--out={tmp_path / 'table'}"]) == 0
    assert (tmp_path / "table" / "table.md").read_text().count("5.25 [too few]") == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "needs a language model as judge"),
        (["--extractor=lmms-eval/mlvu"], "leave out --extractor"),
        (["--judge=profile=longvt"], "leave out its prompt_file and profile"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    options: list[str], reason: str, line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with model() as server, JudgeServer(reply=scored) as judge:
        urls = [f"--base-url={server.base_url}", *([f"--judge-base-url={judge.base_url}"] if options else [])]
        assert run([*line, *urls, *options, f"--out={tmp_path / 'out'}"]) == 2
        assert not server.requests
    assert reason in capsys.readouterr().err
