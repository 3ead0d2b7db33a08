"""Verdicts that are kept on disk."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.judge_server import MODEL, JudgeServer, completion
from tests.services.judge.asking import failure, in_turn, judge_once
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.judge import CacheKey, JudgeConfig, VerdictCache

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")


async def test_a_kept_verdict_needs_no_request(server: JudgeServer, tmp_path: Path) -> None:
    config = JudgeConfig(base_url=server.base_url, model=MODEL, cache_dir=str(tmp_path))
    await judge_once(config)
    server.kill()
    label, counters = await judge_once(config)
    assert label is AnswerLabel.CORRECT
    assert (len(server.requests), counters.cache_hits, counters.attempts) == (1, 1, 0)


async def test_a_verdict_depends_on_everything_that_was_asked(server: JudgeServer, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("other")
    base = {"base_url": server.base_url, "cache_dir": str(tmp_path / "cache")}
    await judge_once(JudgeConfig(**base))
    await judge_once(JudgeConfig(**base), answer="a horse")
    await judge_once(JudgeConfig(**base, model="other"))
    await judge_once(JudgeConfig(**base, prompt_file=str(prompt)))
    assert len(server.requests) == 4
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 4


async def test_a_label_that_a_profile_does_not_know_is_asked_again(server: JudgeServer, tmp_path: Path) -> None:
    """Instructions of one's own may be those of several profiles."""
    (tmp_path / "prompt.txt").write_text("Grade it.")
    base = {
        "base_url": server.base_url,
        "cache_dir": str(tmp_path / "cache"),
        "prompt_file": str(tmp_path / "prompt.txt"),
    }
    server.reply = in_turn(completion('{"label": "partial"}'), completion('{"label": "incorrect"}'))
    assert (await judge_once(JudgeConfig(**base)))[0] is AnswerLabel.PARTIAL
    assert (await judge_once(JudgeConfig(**base, profile="videosiah")))[0] is AnswerLabel.INCORRECT
    assert len(server.requests) == 2


async def test_failures_are_not_kept(server: JudgeServer, tmp_path: Path) -> None:
    config = JudgeConfig(base_url=server.base_url, cache_dir=str(tmp_path))
    server.reply = in_turn(*[completion("?")] * 8)  # also where a known answer is asked about
    await failure(config)
    label, _ = await judge_once(config)
    assert label is AnswerLabel.CORRECT


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'{"label": "maybe"}', b"[]"])
async def test_a_damaged_entry_is_asked_again(server: JudgeServer, tmp_path: Path, content: bytes) -> None:
    config = JudgeConfig(base_url=server.base_url, cache_dir=str(tmp_path))
    await judge_once(config)
    (entry,) = tmp_path.rglob("*.json")
    entry.write_bytes(content)
    label, counters = await judge_once(config)
    assert (label, counters.cache_hits, len(server.requests)) == (AnswerLabel.CORRECT, 0, 2)
    assert json.loads(entry.read_text())["label"] == "correct"


@pytest.mark.parametrize("name", ["question", "truth", "answer", "prompt", "model"])
def test_a_verdict_under_the_name_of_another_is_not_believed(tmp_path: Path, name: str) -> None:
    kept, key = VerdictCache(tmp_path), CacheKey("?", "a dog", "a cat", "Judge.", MODEL)
    kept.put(key, AnswerLabel.INCORRECT)
    (entry,) = tmp_path.rglob("*.json")
    other = replace(key, **{name: "another"})
    kept.put(other, AnswerLabel.CORRECT)
    (wrong,) = set(tmp_path.rglob("*.json")) - {entry}
    wrong.replace(entry)
    assert kept.get(key) is None


def test_a_label_that_was_changed_on_disk_is_not_believed(tmp_path: Path) -> None:
    kept, key = VerdictCache(tmp_path), CacheKey("?", "a dog", "a cat", "Judge.", MODEL)
    kept.put(key, AnswerLabel.INCORRECT)
    (entry,) = tmp_path.rglob("*.json")
    entry.write_text(entry.read_text().replace('"incorrect"', '"correct"'))
    assert kept.get(key) is None


async def test_a_folder_that_cannot_be_written_costs_no_verdict(server: JudgeServer, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    label, _ = await judge_once(JudgeConfig(base_url=server.base_url, cache_dir=str(blocked)))
    assert label is AnswerLabel.CORRECT


async def test_a_full_disk_costs_no_verdict_and_leaves_nothing(
    server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    label, _ = await judge_once(JudgeConfig(base_url=server.base_url, cache_dir=str(tmp_path)))
    assert label is AnswerLabel.CORRECT
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


PROCESS = """
import asyncio, sys
from verl_video_tools.services.judge import JudgeConfig, LLMJudge

async def main():
    async with LLMJudge(JudgeConfig(base_url=sys.argv[1], cache_dir=sys.argv[2])) as judge:
        labels = await asyncio.gather(*(judge.judge("?", str(i), str(i % 10)) for i in range(40)))
    print([label.value for label in labels])

asyncio.run(main())
"""


@pytest.mark.slow
def test_processes_share_a_folder(server: JudgeServer, tmp_path: Path) -> None:
    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROCESS, server.base_url, str(tmp_path)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    expected = str([("correct" if i < 10 else "incorrect") for i in range(40)]) + "\n"
    together = [start(), start()]
    assert [process.communicate(timeout=60)[0] for process in together] == [expected] * 2
    assert len(list(tmp_path.rglob("*.json"))) == 40
    assert list(tmp_path.rglob("*.partial")) == []
    num_requests = len(server.requests)
    assert start().communicate(timeout=60)[0] == expected
    assert len(server.requests) == num_requests
