"""Benchmarks of free text: Video-MMLU by a judge with its own rule, DREAM-1K by its authors' code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chat_server import chat_reply, scripted
from tests.data.format_cases import SAMPLES
from tests.evaluation.eval_command import result_of
from tests.judge_server import JudgeServer, completion
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.prompts import prompt_digest
from verl_video_tools.data.formats import get_benchmark

pytest.importorskip("openai", reason="the extra `judge` is not installed")


def test_video_mmlu_is_judged_by_its_strict_rule(tmp_path: Path, make_video: MakeVideo) -> None:
    for name in ("OddSums", "Alkenes"):
        (tmp_path / f"{name}.mp4").symlink_to(make_video(100))
    annotations = SAMPLES / "video_mmlu" / "Video_MMLU_QA.tsv"
    line = ["eval", "--benchmark=video-mmlu", f"--annotations={annotations}", f"--videos={tmp_path}", "--method=direct"]
    scripts = {
        "nested corners": ["<answer>a rule about squares</answer>"],
        "base added": ["<answer>It removes HBr.</answer>"],
    }

    def verdict(request: dict[str, object]) -> object:
        return completion(json.dumps({"label": "correct" if "HBr" in json.dumps(request) else "incorrect"}))

    with JudgeServer(reply=scripted(scripts)) as server, JudgeServer(reply=verdict) as judge:
        urls = [f"--base-url={server.base_url}", f"--judge-base-url={judge.base_url}"]
        assert run([*line, *urls, f"--out={tmp_path / 'out'}"]) == 0
        (instructions,) = {request["messages"][0]["content"] for request in judge.requests}
    assert "every key term, concept and example" in instructions and "partial" not in instructions
    result = result_of(tmp_path / "out")
    prompt_file = get_benchmark("video-mmlu").judge_prompt_file()
    assert result["protocol"]["judge"]["prompt_digest"] == prompt_digest(prompt_file) is not None
    shares = {name: figures["accuracy"] for name, figures in result["groups"]["discipline"].items()}
    assert shares == {"Math": 0.0, "Chemistry": 1.0} and result["overall"]["discipline_mean"] == 0.5


def test_descriptions_are_handed_to_the_code_that_scores_dream_1k(
    tmp_path: Path, make_video: MakeVideo, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its lines, with each first description where `evaluation/evaluate.py` looks for it."""
    (tmp_path / "1.mp4").symlink_to(make_video(100))
    (tmp_path / "2.mp4").write_bytes(b"no video")
    published = json.loads((SAMPLES / "dream_1k" / "DREAM-1k.jsonl").read_text().splitlines()[0])
    annotations = tmp_path / "published.jsonl"
    annotations.write_text("".join(json.dumps({**published, "vid": n, "idx": n}) + "\n" for n in (1, 2)))
    line = ["eval", "--benchmark=dream-1k", f"--annotations={annotations}", f"--videos={tmp_path}", "--method=direct"]
    replies = iter(("A man lifts a bowl.", "Later."))
    with JudgeServer(reply=lambda request: chat_reply(f"<answer>{next(replies)}</answer>")) as server:
        options = [f"--base-url={server.base_url}", f"--out={tmp_path / 'out'}", "--repeats=2", "--concurrency=1"]
        assert run([*line, *options]) == 0, "no judge is needed"
    assert f"answers to hand in: {tmp_path / 'out' / 'DREAM-1k.jsonl'}" in capsys.readouterr().err
    overall = result_of(tmp_path / "out")["overall"]
    assert (overall["accuracy"], result_of(tmp_path / "out")["graded_by"]) == (None, {})
    written = list(map(json.loads, (tmp_path / "out" / "DREAM-1k.jsonl").read_text().splitlines()))
    texts = [entry["messages"][1]["content"][0].pop("text") for entry in written]
    assert texts == ["A man lifts a bowl.", ""], "the second video cannot be read"
    published["messages"][1]["content"][0].pop("text")
    assert written == [{**published, "vid": n, "idx": n} for n in (1, 2)]
