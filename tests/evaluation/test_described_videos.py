"""A benchmark of free text: Video-MMLU by a judge with its own rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chat_server import scripted
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
