"""The GPU benchmark where there is no GPU: it says so. What it measures is tested in tests/gpu."""

from __future__ import annotations

import pytest

from benchmarks import gpu


def test_without_a_gpu_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpu.main([]) == 1
    message = capsys.readouterr().err
    assert "nothing was measured" in message and "a CUDA device" in message


def test_table() -> None:
    lines = gpu.table([gpu.Rate("decode", 900.0, 300.0, "frames", "qwen-vl-utils")]).splitlines()
    assert lines[-1] == "| decode | 900 frames | qwen-vl-utils | 300 | 3 |"
