"""The file of rows that `vvt data haystack` writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("scenedetect", reason="the extra `haystack` is not installed")

from verl_video_tools.data.haystack.pipeline import Candidate
from verl_video_tools.data.haystack.rows import write_rows

CANDIDATE = Candidate("link/a.mp4", "What?", "this", 1.0, 2.0, "group")


def test_rows_are_read_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths are absolute, through links as they are."""
    (tmp_path / "videos").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "videos")
    monkeypatch.chdir(tmp_path)
    write_rows([CANDIDATE], tmp_path / "rows.parquet")
    (row,) = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    assert row["extra_info"]["video_path"] == f"{tmp_path}/link/a.mp4"


def test_what_cannot_be_written_whole_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    write_rows([CANDIDATE], path)
    earlier = path.read_bytes()
    monkeypatch.setattr(pq.ParquetWriter, "write_table", _stopped)
    with pytest.raises(KeyboardInterrupt):
        write_rows([CANDIDATE, CANDIDATE], path)
    assert path.read_bytes() == earlier and list(tmp_path.iterdir()) == [path]


def _stopped(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
