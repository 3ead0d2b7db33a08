"""Subtitle files as people have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats.subtitles import read_srt, with_subtitles, without_subtitles

SRT = "1\n00:00:01,000 --> 00:00:02,000\n<i>Où est</i>\nle chat ?\n\n2\n00:00:03,000 --> 00:00:04,000\nIci &amp; là.\n"
CAPTIONS = ["Où est le chat ?", "Ici & là."]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_name_themselves(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "v.srt"
    path.write_text(SRT, encoding=encoding)
    assert read_srt(path) == CAPTIONS


def test_times_of_webvtt_without_hours(tmp_path: Path) -> None:
    path = tmp_path / "v.srt"
    path.write_text("WEBVTT\n\n00:00.500 --> 00:02.000\nHello.\n\n00:03.000 --> 00:04.000 align:start\nBye.\n")
    assert read_srt(path) == ["Hello.", "Bye."]


@pytest.mark.parametrize("text", ["", "\ufeff", "<html><body>Not found</body></html>\n", "1\n2\n"])
def test_a_file_without_times_is_a_video_without_speech(text: str, tmp_path: Path) -> None:
    path = tmp_path / "v.srt"
    path.write_text(text, encoding="utf-8")
    question = "What is it?\n\nA. a cat\nB. a dog"
    assert read_srt(path) == []
    assert with_subtitles(question, read_srt(path)) == question == without_subtitles(question)


def test_another_encoding_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "v.srt"
    path.write_bytes("1\n00:00:01,000 --> 00:00:02,000\n猫在哪里\n".encode("gbk"))
    with pytest.raises(RowError, match=r"v\.srt are not UTF-8"):
        read_srt(path)
