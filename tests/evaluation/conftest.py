"""The Video-MME sample with videos, as a user would bring it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.certificates import unread_certificates as unread_certificates
from tests.videos.files import MakeVideo
from verl_video_tools.data.formats import BenchmarkFiles

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def video_mme(tmp_path: Path, make_video: MakeVideo) -> BenchmarkFiles:
    """The sample as the published parquet file, with videos and the subtitles of one."""
    entries = json.loads((SAMPLES / "video_mme.json").read_text())
    pq.write_table(pa.Table.from_pylist(entries), tmp_path / "test.parquet")
    videos, subtitles = tmp_path / "data", tmp_path / "subtitle"
    videos.mkdir()
    subtitles.mkdir()
    for name in ("kitchen_one.mp4", "-Tide02.MP4"):
        (videos / name).symlink_to(make_video(100))
    shutil.copy(SAMPLES / "video_mme.srt", subtitles / "kitchen_one.srt")
    return BenchmarkFiles(annotations=tmp_path / "test.parquet", videos=videos, subtitles=subtitles)
