"""The actor on one GPU, from a model's configuration with random weights: seconds, and memory beside the plan.

    python -m benchmarks.gpu_model                       # on a GPU: all models that `vvt estimate` knows
    python -m benchmarks.gpu_model --model tiny          # anywhere, in seconds

Needs torch and transformers, no vLLM and no weights. Lengths are those of LongVT's and VideoZoomer's longest rollouts,
divided by 128 on a CPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.entropy import provide_cross_entropy
from benchmarks.gpu_model import actor, host
from benchmarks.gpu_model.lengths import METHODS, lengths_of
from benchmarks.gpu_model.meter import Measured, Meter, section
from benchmarks.gpu_model.random_model import TINY, configuration, random_model
from verl_video_tools.launch.plan import ModelShape, find_model
from verl_video_tools.synthetic import base_model_dir

SHORTEN_ON_CPU = 128
SECONDS_PER_MODEL = 600
MODELS = ("qwen2.5-vl-3b", "qwen2.5-vl-7b", "qwen3-vl-8b")
"""Measured by default: one GPU holds each with its gradients, and their formulas have been compared on a CPU."""


def attention(device: str) -> tuple[str, bool]:
    """transformers' name of the attention, and whether it keeps packed sequences apart."""
    if device == "cuda" and find_spec("flash_attn"):
        return "flash_attention_2", True
    if not find_spec("verl"):
        return "sdpa", False
    from verl_video_tools.verl_plugin import packed_attention

    packed_attention.register()
    return packed_attention.NAME, True


def measure_model(name: str, device: str, shorten: int) -> list[Measured]:
    """All lines of one model."""
    shape: ModelShape = find_model(str(base_model_dir()) if name == TINY else name)
    meter = Meter(device)
    if find_spec("verl") and not find_spec("flash_attn"):
        provide_cross_entropy()  # before anything else imports verl
    chosen, packs = attention(device)
    model = random_model(configuration(name), device, chosen)
    for method in METHODS:
        lengths = lengths_of(method, shape, shorten)
        actor.measure_vision(meter, model, shape, lengths)
        actor.measure_text(meter, model, shape, lengths)
        actor.measure_head(meter, model, shape, lengths)
        actor.measure_packing(meter, model, shape, lengths, packs=packs)
        meter.lines.append(host.processor_seconds(shape, lengths))
        gc.collect()
    meter.lines.append(host.decode_seconds(host.FULL_HD if device == "cuda" else host.SMALL))
    return meter.lines


def as_json(lines: Sequence[Measured]) -> list[dict[str, Any]]:
    return [asdict(line) | {"ratio": line.ratio} for line in lines]


def measure_all(names: Sequence[str], out: Path) -> int:
    """Each model in a process of its own, which frees the GPU; how many failed."""
    failed = 0
    found = {}
    for name in names:
        part = out.with_name(f"{out.stem}_{name.replace('/', '_')}.json")
        command = [sys.executable, "-m", "benchmarks.gpu_model", "--model", name, "--out", str(part)]
        try:
            failed += subprocess.run(command, timeout=SECONDS_PER_MODEL, check=False).returncode != 0
        except subprocess.TimeoutExpired:
            print(f"{name}: not finished after {SECONDS_PER_MODEL} s", file=sys.stderr)
            failed += 1
        if part.is_file():
            found[name] = json.loads(part.read_text("utf-8"))
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", help="tiny, names that `vvt estimate` knows, or folders with config.json")
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu_model/measured.json"))
    options = parser.parse_args(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    names = options.model or (list(MODELS) if device == "cuda" else [TINY])
    if len(names) > 1:
        return 1 if measure_all(names, options.out) else 0
    if device == "cpu":
        torch.compiler.set_stance("force_eager")  # compiling takes longer than everything else
        torch.set_num_threads(1)
    lines = measure_model(names[0], device, 1 if device == "cuda" else SHORTEN_ON_CPU)
    print(section(f"Parts of {names[0]} on {device}", lines), flush=True)
    result = {"model": names[0], "device": device, "lines": as_json(lines)}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
