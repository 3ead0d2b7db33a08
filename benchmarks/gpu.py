"""Does reading frames keep up with the GPU? Decode and token throughput as ratios, all measured in one run.

    make bench-gpu
    python -m benchmarks.gpu --model Qwen/Qwen2.5-VL-7B-Instruct

decode    frames per second that groups of rollouts get (one look at the whole video, three close ones each), against
          qwen-vl-utils, which reads frames in stock verl
tokens    tokens per second that vLLM generates after prompts with pictures, against texts of the same length
headroom  frames decoded per second, against frames that vLLM takes in meanwhile; below 1 the GPU waits for the decoder

The figures of the tiny model, the default, say only that everything works. Without a GPU or vLLM it says so at once and
exits with 1; with `--allow-cpu` it says what it leaves out, measures decoding, which needs neither, and exits with 0.
`--check` looks and measures nothing: `make bench-gpu` asks before its other, long part.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.video.costs import TraceCost, measure_trace
from benchmarks.video.long_files import LongVideo, write_long_video
from benchmarks.video.worker import SHARED
from verl_video_tools.synthetic import base_model_dir

FRAMES_PER_ROLLOUT = 80
"""Of `benchmarks.video.requests.group_trace`: 32 of the whole video, three times 16."""
PICTURES_PER_PROMPT, PICTURE_WIDTH, PICTURE_HEIGHT = 8, 280, 168


@dataclass(frozen=True, slots=True)
class Rate:
    """One line of the result."""

    name: str
    ours_per_second: float
    baseline_per_second: float
    unit: str
    baseline: str

    @property
    def ratio(self) -> float:
        return self.ours_per_second / self.baseline_per_second


def missing() -> list[str]:
    """What this machine lacks for the measurement."""
    import torch

    found = [] if torch.cuda.is_available() else ["a CUDA device (torch.cuda.is_available() is False)"]
    return found if find_spec("vllm") else [*found, "vLLM (make install DEVICE=gpu)"]


def measure_decode(video: LongVideo, folder: Path, num_rollouts: int) -> Rate:
    """Raises RuntimeError if one of the readers fails."""
    path = write_long_video(video, folder)
    seconds = {}
    for reader in (SHARED, "qwen"):
        cost = measure_trace(video, path, reader, num_rollouts=num_rollouts, repetitions=1)
        if not isinstance(cost, TraceCost):
            raise RuntimeError(f"frames could not be read with {reader}: {cost}")
        seconds[reader] = cost.wall_seconds
    num_frames = FRAMES_PER_ROLLOUT * num_rollouts
    return Rate("decode", num_frames / seconds[SHARED], num_frames / seconds["qwen"], "frames", "qwen-vl-utils")


def picture_prompts(processor: Any, num_prompts: int) -> list[dict[str, Any]]:
    """Prompts for vLLM, with random pictures that are the same at every call."""
    content = [*({"type": "image"} for _ in range(PICTURES_PER_PROMPT)), {"type": "text", "text": "what is shown"}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    shape = (num_prompts, PICTURES_PER_PROMPT, PICTURE_HEIGHT, PICTURE_WIDTH, 3)
    pictures = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return [{"prompt": text, "multi_modal_data": {"image": [*map(Image.fromarray, each)]}} for each in pictures]


def measure_tokens(model: str, num_prompts: int, tokens_per_prompt: int) -> tuple[Rate, float]:
    """Tokens generated per second, and pictures that vLLM took in per second meanwhile."""
    from transformers import AutoProcessor
    from vllm import LLM, SamplingParams

    processor = AutoProcessor.from_pretrained(model)
    first, *prompts_with_pictures = picture_prompts(processor, num_prompts + 1)
    engine = LLM(
        model,
        max_model_len=2048,
        limit_mm_per_prompt={"image": PICTURES_PER_PROMPT, "video": 0},
        enable_prefix_caching=False,  # every prompt is to be read
        mm_processor_cache_gb=0,
        seed=0,
    )
    sampling = SamplingParams(max_tokens=tokens_per_prompt, ignore_eos=True)
    length = len(engine.generate([first], sampling, use_tqdm=False)[0].prompt_token_ids)
    words = processor.tokenizer.encode("red circle ", add_special_tokens=False) * length
    seconds = []
    texts = [{"prompt_token_ids": words[:length]} for _ in range(num_prompts)]
    for prompts in (prompts_with_pictures, texts):
        started = time.perf_counter()
        engine.generate(prompts, sampling, use_tqdm=False)
        seconds.append(time.perf_counter() - started)
    num_tokens = num_prompts * tokens_per_prompt
    rate = Rate("tokens", num_tokens / seconds[0], num_tokens / seconds[1], "tokens", f"text of {length} tokens")
    return rate, num_prompts * PICTURES_PER_PROMPT / seconds[0]


def measure(model: str, video: LongVideo, num_rollouts: int, tokens_per_prompt: int) -> list[Rate]:
    """All lines. The engine starts last: it takes the GPU, and memory, until the process ends."""
    with tempfile.TemporaryDirectory() as folder:
        decode = measure_decode(video, Path(folder), num_rollouts)
    tokens, pictures_per_second = measure_tokens(model, num_rollouts, tokens_per_prompt)
    return [decode, tokens, Rate("headroom", decode.ours_per_second, pictures_per_second, "frames", "taken by vLLM")]


def table(rates: Sequence[Rate]) -> str:
    """The lines as Markdown."""
    lines = ["| | per second | baseline | per second | ratio |", "|---|---|---|---|---|"]
    lines += [
        f"| {rate.name} | {rate.ours_per_second:.4g} {rate.unit} | {rate.baseline} | {rate.baseline_per_second:.4g} | "
        f"{rate.ratio:.3g} |"
        for rate in rates
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(base_model_dir()), help="folder or name of a vision-language model")
    parser.add_argument("--rollouts", type=int, default=64, help="rollouts that decode at once, prompts of the engine")
    parser.add_argument("--allow-cpu", action="store_true", help="measure what needs no GPU, where there is none")
    parser.add_argument("--check", action="store_true", help="look what is missing, and measure nothing")
    options = parser.parse_args(arguments)
    lacking = missing()
    if lacking and not options.allow_cpu:
        print(
            f"bench-gpu: nothing is measured; missing: {', '.join(lacking)}. What needs neither: "
            "make bench-gpu ALLOW_CPU=1",
            file=sys.stderr,
        )
        return 1
    if lacking:
        print(f"bench-gpu: not measured: tokens, headroom; missing: {', '.join(lacking)}", file=sys.stderr)
    if options.check:
        return 0
    video = LongVideo("gpu", 640, 360, copy_seconds=20, copies=30)
    if lacking:
        with tempfile.TemporaryDirectory() as folder:
            print(table([measure_decode(video, Path(folder), options.rollouts)]))
        return 0
    print(table(measure(options.model, video, options.rollouts, tokens_per_prompt=128)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
