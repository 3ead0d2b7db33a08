"""The actor's benchmark without a GPU: the whole of it with the tiny model, and lengths and sizes of the real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.entropy import VARIANTS
from benchmarks.gpu_model.actor import positions
from benchmarks.gpu_model.lengths import METHODS, grid_of, lengths_of
from benchmarks.gpu_model.meter import Measured, Meter, section
from benchmarks.gpu_model.random_model import ROPE, configuration, random_model
from verl_video_tools.core.errors import UsageError
from verl_video_tools.launch.plan import find_model, known_models


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_part_with_the_tiny_model(tmp_path: Path) -> None:
    """In a process of its own: verl's functions are imported beside a stand-in for flash-attn."""
    out = tmp_path / "measured.json"
    command = [sys.executable, "-m", "benchmarks.gpu_model", "--model", "tiny", "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-3000:]
    result = json.loads(out.read_text())
    assert (result["model"], result["device"]) == ("tiny", "cpu")
    lines = result["lines"]
    heads = {f"head: {name}" for name, variant in VARIANTS.items() if not variant.compiled}
    updates = {"vision tower, update", "language model, update"}
    forwards = {"vision tower, forward", "language model, forward"}
    packing = {"language model, padded", "language model, packed"}
    assert {line["part"] for line in lines} == heads | updates | forwards | packing | {"processor", "decoding"}
    assert all(line["seconds"] > 0 for line in lines), lines
    assert all(line["extra_bytes"] > 0 for line in lines if line["part"] not in ("processor", "decoding"))
    memory = {line["part"]: line["extra_bytes"] for line in lines if line["case"].startswith("longvt")}
    assert memory["head: log-probabilities alone"] < memory["head: verl's default, eager"]
    assert memory["language model, packed"] < memory["language model, padded"]
    for method in METHODS:
        planned = [line for line in lines if line["case"].startswith(method) and line["ratio"]]
        assert {line["part"] for line in planned} == updates | {"head: log-probabilities alone"}
    assert "| language model, update | longvt" in process.stdout


def test_memory_that_runs_out_is_a_line() -> None:
    def fails() -> None:
        raise torch.OutOfMemoryError("too much")

    meter = Meter("cpu")
    meter.add("language model, update", "longvt", fails, 2.0)
    meter.add("language model, forward", "longvt", lambda: torch.zeros(1000), 2.0)
    lost, found = meter.lines
    assert (lost.note, lost.seconds, lost.ratio) == ("out of memory", None, None)
    assert found.extra_bytes == 4000


def test_section() -> None:
    line = Measured("language model, update", "longvt", 3.0, 6e9, 4e9, tokens=6000)
    text = section("Parts", [line], [("FRAGMENTATION", "1.1", "1.2")])
    assert text.startswith("## Parts\n\n| part |")
    assert "\n| language model, update | longvt | 3 | 2e+03 | 6 | 4 | 1.5 |  |\n\n" in text
    assert text.endswith("| FRAGMENTATION | 1.1 | 1.2 |")


def test_lengths_of_real_rollouts() -> None:
    longvt = lengths_of("longvt", find_model("qwen2.5-vl-7b"))
    assert longvt.images >= 512 + 128 and longvt.grid == (12, 20)  # 280x168
    assert longvt.image_tokens == 60 * longvt.images
    assert longvt.tokens > 10_000  # of a GPU, where several share a rollout
    assert lengths_of("longvt", find_model("qwen2.5-vl-7b"), shorten=64).images == longvt.images // 64
    assert grid_of(91, 2) == (14, 26)


@pytest.mark.parametrize("name", known_models())
def test_models_have_the_sizes_that_a_plan_counts_with(name: str) -> None:
    config = configuration(name)
    text = config["text_config"]
    head_dim = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    turning = head_dim * text["rope_parameters"].get("partial_rotary_factor", 1)
    assert 2 * sum(text["rope_parameters"]["mrope_section"]) == turning
    assert set(ROPE) == {entry["config"]["model_type"] for entry in known_models().values()}
    model = random_model(config, "meta", "sdpa")
    assert sum(parameter.numel() for parameter in model.parameters()) == find_model(name).num_parameters
    assert all(parameter.dtype == parameter.grad.dtype == torch.bfloat16 for parameter in model.parameters())
    assert model.is_gradient_checkpointing


def test_a_model_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match="tiny, qwen2"):
        configuration("qwen9")


def test_positions_start_anew_in_each_packed_sequence() -> None:
    assert positions([3, 2], "cpu")[:, 0].tolist() == [[0, 1, 2, 0, 1]] * 4
