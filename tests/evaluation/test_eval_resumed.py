"""`vvt eval` given again: what goes on, and what another evaluation is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chat_server import scripted
from tests.evaluation.eval_command import SCRIPTS, command, result_of, serving
from tests.evaluation.made_results import protocol, questions, record
from tests.judge_server import JudgeServer
from tests.verl_plugin.harness import model_dir
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.data.append import appended
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.evaluation import serve
from verl_video_tools.evaluation.items import items_of
from verl_video_tools.evaluation.serve import model_digest
from verl_video_tools.records.records import read_records

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_killed_and_resumed_equals_uninterrupted(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    """Each question is asked three times, at two endpoints; the command gets SIGKILL."""
    killed, whole = tmp_path / "killed" / "out", tmp_path / "whole" / "out"
    with JudgeServer(reply=scripted(SCRIPTS)) as server, JudgeServer(reply=scripted(SCRIPTS)) as second:
        more = ["--repeats=3", f"--base-url={second.base_url}"]
        assert run(command(video_mme, whole, server, *more)) == 0
        num_requests = len(server.requests) + len(second.requests)
        assert second.requests
        for each in (server, second):
            each.requests.clear()

        server.latency_seconds = second.latency_seconds = 0.3
        line = command(video_mme, killed, server, "--concurrency=1", *more)
        rollouts = killed / "rollouts.jsonl"
        process = subprocess.Popen(
            [sys.executable, "-m", "verl_video_tools.cli", *line], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 100
            while (not rollouts.exists() or not rollouts.read_bytes()) and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait()
        done = rollouts.read_bytes()
        assert 1 <= done.count(b"\n") < 9 and not (killed / "results.json").exists()
        with rollouts.open("ab") as file:
            file.write(b'{"step": 0, "uid": "2", "sess')  # a line cut by the kill

        for each in (server, second):
            each.requests.clear()
        server.latency_seconds = second.latency_seconds = 0.0
        assert run(command(video_mme, killed, server, *more)) == 0
        assert rollouts.read_bytes().startswith(done)
        finished = list(read_records(rollouts))[: done.count(b"\n")]
        finished_turns = sum(len(record["trajectory"].turns) for record in finished)
        assert len(server.requests) + len(second.requests) == num_requests - finished_turns

        tables = ("table.md", "table.csv")
        for name in ("results.json", "items.jsonl", *tables, "protocol.json"):
            assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
        for each in (server, second):
            each.requests.clear()
        assert run(command(video_mme, killed, server, *more)) == 0
        assert server.requests == second.requests == []


def test_another_evaluation_does_not_go_on_in_the_folder(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, out, server)) == 0
        before = (out / "results.json").read_bytes()
        capsys.readouterr()
        assert run(command(video_mme, out, server, "--temperature=0.5", "--set=call_frames=8")) == 2
    told = capsys.readouterr().err
    assert "holds another evaluation: config.call_frames was" in told
    assert "sampling.temperature was 0.0 and is now 0.5. Give another --out" in told
    assert (out / "results.json").read_bytes() == before


def test_a_folder_in_use_keeps_its_protocol(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also before the first line of the run that uses it."""
    out = tmp_path / "out"
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, out, server)) == 0
        (out / "rollouts.jsonl").write_bytes(b"")
        before = (out / "protocol.json").read_bytes()
        capsys.readouterr()
        with appended(out / "rollouts.jsonl"):
            assert run(command(video_mme, out, server, "--temperature=0.5")) == 2
    assert "is being written by another process" in capsys.readouterr().err
    assert (out / "protocol.json").read_bytes() == before


@pytest.mark.slow
def test_a_prompt_is_known_by_its_text(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, prompt = tmp_path / "out", tmp_path / "prompt.txt"
    prompt.write_text("Look again.")
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, out, server, f"--set=prompt_file={prompt}")) == 0
        before = (out / "results.json").read_bytes()
        moved = prompt.rename(tmp_path / "moved.txt")
        assert run(command(video_mme, out, server, f"--set=prompt_file={moved}")) == 0
        assert (out / "results.json").read_bytes() == before
        other = tmp_path / "other.txt"  # an edit of the same file is read by another process only
        other.write_text("Look twice.")
        capsys.readouterr()
        assert run(command(video_mme, out, server, f"--set=prompt_file={other}")) == 2
        assert "holds another evaluation: config.prompt_file was " in (told := capsys.readouterr().err)
        assert "; prompt_digest was " in told
        assert run(command(video_mme, tmp_path / "none", server, f"--set=prompt_file={tmp_path / 'gone'}")) == 2
    assert "cannot read prompt_file" in capsys.readouterr().err and not (tmp_path / "none").exists()


def test_verdicts_by_another_truth_do_not_stay(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = pq.read_table(video_mme.annotations).to_pylist()
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, tmp_path / "out", server)) == 0
        pq.write_table(pa.Table.from_pylist([{**entries[0], "answer": "D"}, *entries[1:]]), video_mme.annotations)
        capsys.readouterr()
        assert run(command(video_mme, tmp_path / "out", server)) == 2
    told = capsys.readouterr().err
    assert "holds a rollout of another question as row 0: ground_truth was" in told and 'is now "D"' in told


@pytest.mark.slow
def test_figures_of_two_versions_are_by_one_grader(
    video_mme: BenchmarkFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"

    async def other_rule(*_: object, **__: object) -> AnswerLabel:
        return AnswerLabel.INCORRECT

    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, whole, server)) == 0
        with monkeypatch.context() as patch:
            patch.setattr("verl_video_tools.data.generate.grade_answer", other_rule)
            assert run(command(video_mme, out, server)) == 0
        rollouts = (out / "rollouts.jsonl").read_text().splitlines(keepends=True)
        assert all('"answer_label": "incorrect"' in line for line in rollouts)
        (out / "rollouts.jsonl").write_text("".join(rollouts[:2]))
        assert run(command(video_mme, out, server)) == 0
        result, expected = result_of(out), result_of(whole)
        for part in ("overall", "groups", "graded_by"):
            assert result[part] == expected[part], part
        assert (out / "items.jsonl").read_bytes() == (whole / "items.jsonl").read_bytes()


def test_what_a_judge_has_said_stays_and_rules_decide_anew() -> None:
    asked = questions(3, 1)
    labels = AnswerLabel.PARTIAL, AnswerLabel.INCORRECT, None
    records = [record(task, True, answer_label=label) for task, label in zip(asked.tasks, labels, strict=True)]
    records[0]["extra_info"] = {"question": "Which one?", "question_type": "open", "video_path": "v.mp4"}
    records[0]["trajectory"].answer = "an A"
    items = items_of(asked, records, protocol())
    assert [(item.label, item.graded_by) for item in items] == [
        ("partial", "judge"),
        ("correct", "rule for mc"),
        (None, None),
    ]


@pytest.mark.slow
def test_another_model_under_the_same_name_does_not_go_on(
    video_mme: BenchmarkFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor one of the same size in the same folder; but the same one in another folder does."""
    out, model = tmp_path / "out", tmp_path / "model"
    shutil.copytree(model_dir(), model)
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        monkeypatch.setattr(serve, "served_model", serving(server, []))
        line = [part for part in command(video_mme, out, server) if not part.startswith("--base-url")]
        assert run([*line, "--model=m", f"--serve={model}"]) == 0
        before = (out / "results.json").read_bytes()
        moved = model.rename(tmp_path / "moved")
        assert run([*line, "--model=m", f"--serve={moved}"]) == 0
        assert (out / "results.json").read_bytes() == before

        weights = bytearray((moved / "model.safetensors").read_bytes())
        weights[len(weights) // 2] ^= 1
        (moved / "model.safetensors").write_bytes(weights)
        capsys.readouterr()
        assert run([*line, "--model=m", f"--serve={moved}"]) == 2
        assert "holds another evaluation: served.digest was " in capsys.readouterr().err


def test_what_tells_models_apart(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "checkpoint").mkdir(parents=True)
    for name, text in (("config.json", "{}"), ("a.safetensors", "a"), ("b.safetensors", "b")):
        (model / name).write_text(text)
    whole = model_digest(str(model))
    assert whole is not None and re.fullmatch("[0-9a-f]{16}", whole)
    (model / "README.md").write_text("of no matter")
    (model / "checkpoint" / "config.json").write_text("another model")
    assert model_digest(str(model)) == whole
    (model / "a.safetensors").write_text("b")
    (model / "b.safetensors").write_text("a")
    assert model_digest(str(model)) != whole
    assert model_digest(str(model / "a.safetensors")) is not None
    assert model_digest("Qwen/Qwen2.5-VL-7B-Instruct") is None
