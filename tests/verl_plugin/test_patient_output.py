"""Lines for a reader who may stop or go."""

from __future__ import annotations

import io
import os
from pathlib import Path

from verl_video_tools.verl_plugin.patient_output import PatientOutput


def test_a_pipe_that_is_full_blocks_nobody_and_gets_the_rest_later() -> None:
    read, written = os.pipe()
    with os.fdopen(written, "w") as stream, os.fdopen(read, "rb") as reader:
        output = PatientOutput(stream)
        lines = [f"{number} " + "x" * 10_000 for number in range(50)]  # a pipe takes 64 KiB
        for line in lines:
            output.write_line(line)
        output.flush(0.1)
        received = b""
        while received.count(b"\n") < len(lines):
            received += os.read(reader.fileno(), 1 << 16)
            output.flush()
    assert received.decode().splitlines() == lines


def test_there_is_room_while_the_reader_keeps_up() -> None:
    read, written = os.pipe()
    with os.fdopen(written, "w") as stream, os.fdopen(read, "rb") as reader:
        output = PatientOutput(stream)
        while output.has_room():
            output.write_line("x" * 1000)
        assert not output.has_room(0.1)
        assert os.read(reader.fileno(), 1 << 16)
        assert output.has_room()


def test_a_reader_who_has_gone_is_forgotten() -> None:
    read, written = os.pipe()
    with os.fdopen(written, "w") as stream:
        output = PatientOutput(stream)
        while output.has_room():
            output.write_line("x" * 1000)
        os.close(read)
        output.flush(10.0)
        assert output.has_room(), "nothing waits for nobody"
        output.write_line("two")


def test_characters_that_the_encoding_lacks_are_escaped(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as stream:
        PatientOutput(stream).write_line("50 % ┃ é")
    assert (tmp_path / "out").read_bytes() == b"50 % \\u2503 \\xe9\n"


def test_streams_without_a_file_and_none_at_all() -> None:
    stream = io.StringIO()
    PatientOutput(stream).write_line("line")
    assert stream.getvalue() == "line\n"
    PatientOutput(None).write_line("nobody")
