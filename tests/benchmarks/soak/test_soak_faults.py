"""Faults of a soak: planted, told, and mended."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psutil
import pytest

from benchmarks.soak import faults as soak_faults
from benchmarks.soak.faults import Faults, Files, planted

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def files(tmp_path: Path) -> Files:
    for folder in ("videos", "cache"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_bytes(CONTENT)
    return Files(tmp_path / "videos", tmp_path / "cache", tmp_path / "displaced")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    title = (
        "import setproctitle, sys; setproctitle.setproctitle('VLLM::EngineCore'); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", title], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_videos_come_back_whole(files: Files, tmp_path: Path) -> None:
    video = tmp_path / "videos" / "file"
    files.take_video(Random(0))
    assert not video.exists()
    files.put_back()
    assert video.read_bytes() == CONTENT
    files.damage_video(Random(0))
    assert video.read_bytes() != CONTENT and len(video.read_bytes()) == len(CONTENT)
    Files(tmp_path / "videos", tmp_path / "cache", tmp_path / "displaced")  # a sitting after one that was killed
    assert video.read_bytes() == CONTENT


def test_a_cache_file_is_damaged_in_place(files: Files, tmp_path: Path) -> None:
    file = tmp_path / "cache" / "file"
    inode = file.stat().st_ino
    files.damage_cache(Random(0))
    assert file.read_bytes() != CONTENT and file.stat().st_ino == inode


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/models", timeout=10) as reply:
            return bool(reply.status == 200)
    except urllib.error.URLError:
        return False


def test_every_fault_is_planted_and_mended(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_faults, "FAULT_PROBABILITY", 1.0)
    monkeypatch.setattr(soak_faults, "KILL_PROBABILITY", 0.0)
    told: list[tuple[int, str]] = []
    seen: dict[str, bool] = {}
    with planted(Random(1), files, list, lambda *fault: told.append(fault)) as (faults, url):
        for step in range(150):
            before = len(told)
            faults.after(step)
            if len(told) > before and told[-1][1] == "judge away":
                seen["away"] = answers(url)
                faults.mend()
                seen["back"] = answers(url)
    assert seen == {"away": False, "back": True}
    assert {name for _, name in told} == {"judge away", "video missing", "video damaged", "cache file damaged"}
    assert not answers(url)
    assert (tmp_path / "videos" / "file").read_bytes() == CONTENT


def test_a_process_of_the_run_is_killed(
    files: Files, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak_faults, "KILL_PROBABILITY", 1.0)
    told: list[tuple[int, str]] = []

    def processes() -> list[psutil.Process]:
        return [psutil.Process(), psutil.Process(sleeper.pid)]

    with planted(Random(1), files, processes, lambda *fault: told.append(fault)) as (faults, _):
        assert isinstance(faults, Faults)
        faults.after(7)
    assert told == [(7, "vLLM engine killed")]
    assert sleeper.wait(30) == -9
