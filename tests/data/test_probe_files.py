"""`vvt data probe`: finding files, the report, and files that cannot be read."""

from __future__ import annotations

import json
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


def test_a_failure_of_ours_costs_one_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is no error of the video, and the time of one file is not the others'."""

    def probe(path: Path, deadline_seconds: float, check_decoding: bool) -> object:
        if path.name == "bug.mp4":
            raise KeyError("a bug")
        return real(path, deadline_seconds, check_decoding=check_decoding)

    real = module.probe
    monkeypatch.setattr(module, "probe", probe)
    good, bug = sorted(probe_files([folder / "a.mp4", folder / "bug.mp4"], 2, 30.0), key=lambda record: record["path"])
    assert good["ok"] and bug == {
        "path": str(folder / "bug.mp4"),
        "ok": False,
        "error": "KeyError",
        "message": f"{folder / 'bug.mp4'}: 'a bug'",
    }


def test_the_others_are_left_when_the_scan_stops(folder: Path) -> None:
    records = probe_files([folder / "a.mp4"] * 30, jobs=1, deadline_seconds=30)
    assert next(records)["ok"]
    records.close()  # as an interrupt would
