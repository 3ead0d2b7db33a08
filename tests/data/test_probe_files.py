"""`vvt data probe`: finding files, the report, and files that crash or hang the process that reads them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.videos.files import write_audio, write_video
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.data import probe_files as module
from verl_video_tools.data.probe_files import find_videos, probe_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sound files, one in a subfolder, and three bad ones."""
    videos = tmp_path / "videos"
    (videos / "more").mkdir(parents=True)
    write_video(videos / "a.mp4")
    write_video(videos / "more" / "b.MKV")
    write_audio(videos / "sound.mp4")
    (videos / "text.mp4").write_text("no video")
    (videos / "empty.mp4").write_bytes(b"")
    (videos / "notes.md").write_text("not looked at")
    return videos


def test_sources(folder: Path, tmp_path: Path) -> None:
    names = ["a.mp4", "empty.mp4", "more/b.MKV", "sound.mp4", "text.mp4"]
    assert find_videos(folder) == [folder / name for name in names]
    assert find_videos(folder / "a.mp4") == [folder / "a.mp4"]
    rows = [{"data_source": "x", "extra_info": {"video_path": name}} for name in ("a.mp4", "b.mp4", "a.mp4")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + '\n\n{"video_path": "c.mp4"}')
    (tmp_path / "breaks.jsonl").write_text('{"question": "x\u2028y", "video_path": "a\x85b.mp4"}\n', encoding="utf-8")
    (tmp_path / "list.txt").write_text("a.mp4\n\nb.mp4\na.mp4\n")
    for name, text in [("marked.txt", "a.mp4\n"), ("marked.jsonl", '{"video_path": "a.mp4"}\n')]:
        (tmp_path / name).write_text(text, encoding="utf-8-sig")  # as editors of Windows write it
        assert find_videos(tmp_path / name) == [Path("a.mp4")]
    assert find_videos(tmp_path / "rows.parquet") == [Path("a.mp4"), Path("b.mp4")]
    assert find_videos(tmp_path / "rows.jsonl") == [Path("a.mp4"), Path("b.mp4"), Path("c.mp4")]
    assert find_videos(tmp_path / "breaks.jsonl") == [Path("a\x85b.mp4")]
    assert find_videos(tmp_path / "list.txt") == [Path("a.mp4"), Path("b.mp4")]


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("rows.csv", "a", "expected a folder"),
        ("rows.jsonl", '{"question": "?"}', r"row 0 has no extra_info\.video_path"),
        ("rows.jsonl", '{"video_path": "a.mp4"}\n7', "row 1"),
        ("rows.jsonl", '{"extra_info": "a.mp4"}', r"row 0 has no extra_info\.video_path"),
        ("rows.jsonl", "{", "cannot be read"),
        ("rows.parquet", "no parquet", "cannot be read"),
        ("list.txt", "\n", "names no video"),
        ("absent.txt", None, "no such file or folder"),
    ],
)
def test_unusable_sources(name: str, content: str | None, named: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=named):
        find_videos(tmp_path / name)


@pytest.mark.slow
def test_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.jsonl"
    assert run(["data", "probe", str(folder), "--out", str(out), "--jobs", "2"]) == 1
    records = {Path(record["path"]).name: record for record in map(json.loads, out.read_text().splitlines())}
    assert sorted(records) == ["a.mp4", "b.MKV", "empty.mp4", "sound.mp4", "text.mp4"]
    assert {name for name, record in records.items() if record["ok"]} == {"a.mp4", "b.MKV"}
    assert records["a.mp4"]["probe"]["info"]["num_frames"] == 60
    assert records["sound.mp4"]["error"] == "UnreadableVideoError"
    assert "sound.mp4" in records["sound.mp4"]["message"]
    printed = capsys.readouterr().out
    assert "5 files, 3 bad" in printed and "UnreadableVideoError" in printed
    assert run(["data", "probe", str(folder / "a.mp4")]) == 0
    assert run(["data", "probe", str(folder / "gone")]) == 2
    assert run(["data", "probe", str(folder), "--out", str(tmp_path / "no" / "folder.jsonl")]) == 2


def test_damaged_frames_are_found_if_asked(tmp_path: Path) -> None:
    path = write_video(tmp_path / "damaged.mp4", num_frames=300, gop_frames=30)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = np.random.default_rng(0).bytes(400)
    path.write_bytes(data)
    (shallow,) = probe_files([path], jobs=1, deadline_seconds=30)
    assert shallow["ok"]
    (deep,) = probe_files([path], jobs=1, deadline_seconds=30, decode=True)
    assert not deep["ok"] and deep["error"] == "DamagedFrames"
    assert f"{deep['probe']['num_damaged_frames']} of 300 frames" in deep["message"]


CHILD = """
import json, os, signal, sys, time
for line in sys.stdin:
    path = json.loads(line)["path"]
    if "crash" in path:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "hang" in path:
        time.sleep(600)
    print(json.dumps({"probe": {"num_damaged_frames": None}}), flush=True)
"""


@pytest.mark.slow
def test_a_crash_or_a_hang_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child.py"
    child.write_text(CHILD)
    start = module.ChildProcess
    monkeypatch.setattr(module, "ChildProcess", lambda _: start([sys.executable, str(child)]))
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.5)
    names = ["a", "crash_1", "b", "hang", "c", "crash_2", "d"]
    records = {
        record["path"]: record for record in probe_files([Path(name) for name in names], jobs=2, deadline_seconds=1.5)
    }
    assert sorted(records) == sorted(names)
    assert {name for name in names if records[name]["ok"]} == {"a", "b", "c", "d"}
    assert [records[name]["error"] for name in ("crash_1", "crash_2", "hang")] == ["Crash", "Crash", "Hang"]
    assert records["crash_1"]["message"] == "crash_1: its process was killed by signal 11 (no message)"
    assert "hang: probe: not done within 2.0 s" in records["hang"]["message"]


def test_no_process_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children = []

    class Child(module.ChildProcess):
        def __init__(self, command: list[str]) -> None:
            super().__init__(command)
            children.append(self._process.pid)

    monkeypatch.setattr(module, "ChildProcess", Child)
    records = probe_files([folder / "a.mp4"] * 3, jobs=2, deadline_seconds=30)
    assert next(records)["ok"]
    records.close()  # as an interrupt would
    assert children
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
