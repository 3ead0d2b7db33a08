"""What an item costs: in `results.json`, `items.jsonl` and the tables."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.chat_server import scripted
from tests.evaluation.eval_command import GLANCE, SCRIPTS, ZOOMED_FRAMES, command, result_of
from tests.evaluation.made_results import protocol, questions, record, summarised
from tests.judge_server import JudgeServer
from tests.verl_plugin.harness import model_dir
from verl_video_tools.cli.main import run
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.evaluation.tables import markdown, write_tables
from verl_video_tools.records.records import read_records

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")


@pytest.mark.slow
def test_tokens_requests_and_seconds_of_an_evaluation(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server counts 1 token of a prompt and 7 of a reply; the items take 1, 2 and 3 turns."""
    out = tmp_path / "out"
    with JudgeServer(reply=scripted(SCRIPTS), latency_seconds=0.05) as server:
        line = command(video_mme, out, server, f"--processor={model_dir()}", "--concurrency=1")
        assert run([*line, "--min-pixels=3136", "--max-pixels=3136"]) == 0
    result = result_of(out)
    costs = result["costs"]
    assert costs["requests"] == {"sum": 6, "mean": 2.0}
    assert costs["prompt_tokens"] == {"sum": 6, "mean": 2.0}
    assert costs["completion_tokens"] == {"sum": 42, "mean": 14.0}
    frames = [frame for each in read_records(out / "rollouts.jsonl") for frame in each["trajectory"].initial_frames]
    factor = result["protocol"]["pictures"]["sizes"]["factor"]
    (area,) = {frame.width * frame.height for frame in frames}
    assert costs["visual_tokens"]["sum"] == (3 * GLANCE + 3 * ZOOMED_FRAMES) * area // factor**2
    assert result["overall"]["visual_tokens"] == costs["visual_tokens"]["mean"]
    lines = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert [each["requests"] for each in lines] == [1, 2, 3]
    verdicts = ["correct", "correct", "incorrect"]
    assert [each["label"] for each in lines] == [each["label_published"] for each in lines] == verdicts
    assert sum(each["visual_tokens"] for each in lines) == costs["visual_tokens"]["sum"]
    seconds = [record["seconds"] for record in read_records(out / "rollouts.jsonl")]
    assert sum(seconds) >= 6 * 0.05
    assert f"| out | {costs['visual_tokens']['mean']:,.0f} | 2 | 14 | 2.0 |" in capsys.readouterr().out


def test_what_is_not_known_is_not_told(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    """Without a processor the server fits the frames, to a size that is not known."""
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, tmp_path / "out", server)) == 0
    assert result_of(tmp_path / "out")["costs"]["visual_tokens"] is None
    asked = questions(3, 1)
    records = [record(task, True) for task in asked.tasks]
    records[0]["usage"] = {"requests": 2, "prompt_tokens": 0, "completion_tokens": 0}
    costs = summarised(asked, records, protocol())["costs"]
    assert (costs["prompt_tokens"], costs["completion_tokens"]) == (None, None)
    assert costs["requests"] == {"sum": 6, "mean": 2.0}


def test_intervals_have_columns_of_their_own_in_csv(tmp_path: Path) -> None:
    asked = questions(40, 2)
    result = summarised(asked, [record(task, int(task.uid) % 4 != 0) for task in asked.tasks], protocol())
    write_tables({"made": result}, tmp_path)
    with (tmp_path / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    low, high = result["overall"]["intervals"]["accuracy"]
    assert (float(lines[0]["accuracy_low"]), float(lines[0]["accuracy_high"])) == (low, high)
    assert (lines[1]["group"], lines[1]["accuracy_low"]) == ("even", "")
    assert float(lines[0]["prompt_tokens"]) == 300 and lines[1]["prompt_tokens"] == ""
    assert f"| 75.0 [{100 * low:.1f}, {100 * high:.1f}] |" in markdown({"made": result})
