"""Small files whose headers ask for much: memory, time, or days of video."""

from __future__ import annotations

from pathlib import Path

from tests.videos.files import write_video


def announce_samples(path: Path, num_samples: int) -> Path:
    """An MP4 file of 4 KB that announces so many samples of one byte: FFmpeg makes an entry of 24 bytes for each."""
    data = bytearray(write_video(path, num_frames=12, b_frames=0).read_bytes())
    sizes = data.index(b"stsz") + 8  # after the type, version and flags: common size, number of samples
    data[sizes : sizes + 8] = (1).to_bytes(4, "big") + num_samples.to_bytes(4, "big")
    chunks = data.index(b"stsc") + 12  # first entry: first chunk, samples per chunk, description
    data[chunks + 4 : chunks + 8] = num_samples.to_bytes(4, "big")
    times = data.index(b"stts") + 12  # first entry: number of samples, duration
    data[times : times + 4] = num_samples.to_bytes(4, "big")
    path.write_bytes(data)
    return path


def write_days(path: Path, seconds: int) -> Path:
    """A video of a dozen frames that lasts so long."""
    return write_video(path, times_seconds=range(0, seconds + 1, seconds // 12))
