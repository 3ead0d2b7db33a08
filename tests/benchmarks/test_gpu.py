"""The GPU benchmark where there is no GPU: it says so. What it measures is tested in tests/gpu."""

from __future__ import annotations

import pytest

from benchmarks import gpu


def test_without_a_gpu_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpu.main([]) == 1
    message = capsys.readouterr().err
    assert "nothing is measured" in message and "a CUDA device" in message and "ALLOW_CPU=1" in message
    assert gpu.main(["--check"]) == 1


def test_on_request_it_measures_what_needs_no_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(gpu, "measure_tokens", lambda *_: pytest.fail("it needs a GPU"))
    decode = gpu.Rate("decode", 900.0, 300.0, "frames", "qwen-vl-utils")
    monkeypatch.setattr(gpu, "measure_decode", lambda *_: decode)
    assert gpu.main(["--allow-cpu", "--check"]) == 0 and not capsys.readouterr().out
    assert gpu.main(["--allow-cpu"]) == 0
    found = capsys.readouterr()
    assert "not measured: tokens, headroom" in found.err and found.out == f"{gpu.table([decode])}\n"


def test_table() -> None:
    lines = gpu.table([gpu.Rate("decode", 900.0, 300.0, "frames", "qwen-vl-utils")]).splitlines()
    assert lines[-1] == "| decode | 900 frames | qwen-vl-utils | 300 | 3 |"
