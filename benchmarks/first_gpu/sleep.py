"""vLLM sleeps at level 2 and gets weights through verl's own sender and receiver, as between two steps of a run.

    python -m benchmarks.first_gpu.sleep MODEL

Seconds of each stage, and the memory that all processes then use on the GPU. In a run Ray's processes do this; here
this process sends, and vLLM's worker receives. With the same weights the engine must write what it wrote before, and
something else once the vision tower's weights are zeros; the exit code is 1 where it does not. This has not run yet.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from benchmarks.first_gpu.machine import used_bytes
from benchmarks.gpu import PICTURES_PER_PROMPT, picture_prompts
from benchmarks.gpu_model.meter import Measured, section
from verl_video_tools.launch.plan import CONTEXT_BYTES

BUCKET_MEGABYTES = 512
"""Less than the embeddings of a 7B model, which verl then sends without a bucket, as it sends them in a run."""
NUM_PROMPTS, NUM_TOKENS = 8, 32
SAME = 0.01
"""Log-probabilities that differ by no more come from the same weights."""
JOB_ID = f"first-gpu-{os.getpid()}"
HANDLE = f"ipc:///tmp/rl-colocate-zmq-{JOB_ID}-replica-0-rank-0.sock"
"""Where verl's receiver looks (`vLLMColocateWorkerExtension._get_zmq_handle`) with the variable VERL_RAY_JOB_ID."""


def start(model: str) -> Any:
    """vLLM with what verl's servers give it for this."""
    from vllm import LLM

    os.environ["VERL_RAY_JOB_ID"] = JOB_ID
    return LLM(
        model,
        dtype="bfloat16",
        max_model_len=2048,
        limit_mm_per_prompt={"image": PICTURES_PER_PROMPT, "video": 0},
        gpu_memory_utilization=0.4,  # the sender's weights need room, too
        enable_sleep_mode=True,
        distributed_executor_backend="mp",
        worker_extension_cls="verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension",
        seed=0,
    )


def load_weights(model: str) -> dict[str, torch.Tensor]:
    """transformers' weights on the GPU, under the names that verl sends."""
    from transformers import AutoModelForImageTextToText
    from verl.utils.model import convert_weight_keys

    loaded: Any = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.bfloat16)
    loaded = loaded.to("cuda")
    weights: dict[str, torch.Tensor] = convert_weight_keys(loaded.state_dict(), loaded)
    return weights


def transfer(engine: Any, weights: Mapping[str, torch.Tensor]) -> None:
    """What verl's `ServerAdapter.update_weights` does, without Ray. If one side fails the other one waits for ever."""
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

    sender = BucketedWeightSender(HANDLE, BUCKET_MEGABYTES)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(lambda: asyncio.run(sender.async_send_weights(iter(weights.items()))))
        engine.collective_rpc("update_weights_from_ipc")
        sending.result()


def write(engine: Any, prompts: list[dict[str, Any]]) -> list[float]:
    """Log-probabilities of the most probable tokens after all prompts, as many for each."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, logprobs=0)
    outputs = [request.outputs[0] for request in engine.generate(prompts, sampling, use_tqdm=False)]
    pairs = [pair for each in outputs for pair in zip(each.token_ids, each.logprobs, strict=True)]
    return [entry[token].logprob for token, entry in pairs]


def are_same(one: list[float], other: list[float]) -> bool:
    """Whether the same weights have written both."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) <= SAME


def measure(model: str) -> tuple[list[Measured], bool]:
    """Lines, and whether the engine wrote what it had to."""
    from transformers import AutoProcessor

    lines: list[Measured] = []

    def run(part: str, case: str, function: Callable[..., Any], *arguments: Any, **figures: Any) -> Any:
        started = time.perf_counter()
        result = function(*arguments)
        seconds = time.perf_counter() - started
        lines.append(Measured(part, case, seconds, used_bytes(), **figures))
        return result

    def wake_up(case: str, sent: Mapping[str, torch.Tensor]) -> bool:
        run("wake up, weights", case, engine.wake_up, ["weights"])
        run("transfer", case, transfer, engine, sent, note=f"{sum(it.nbytes for it in sent.values()) / 1e9:.1f} GB")
        run("wake up, cache", case, engine.wake_up, ["kv_cache"])
        return are_same(before, run("generate", case, write, engine, prompts, tokens=NUM_PROMPTS * NUM_TOKENS))

    prompts = picture_prompts(AutoProcessor.from_pretrained(model), NUM_PROMPTS)
    engine = run("start", model, start, model)
    before = run("generate", "first", write, engine, prompts, tokens=NUM_PROMPTS * NUM_TOKENS)
    run("sleep", "level 2", engine.sleep, 2, planned_bytes=CONTEXT_BYTES)
    weights = run("load the sender's weights", "bfloat16", load_weights, model)
    again = wake_up("same weights", weights)
    run("sleep", "level 2, beside the sender", engine.sleep, 2)
    zeros = {name: torch.zeros_like(each) if "visual." in name else each for name, each in weights.items()}
    other = not wake_up("tower of zeros", zeros)
    for case, holds in (("same weights write the same", again), ("a tower of zeros writes something else", other)):
        lines.append(Measured("verdict", case, note="yes" if holds else "NO"))
    return lines, again and other


def main(model: str) -> int:
    lines, is_well = measure(model)
    asleep = next(line.extra_bytes for line in lines if line.part == "sleep")
    sizes = (f"{(size or 0) / 1e9:.2f} GB" for size in (CONTEXT_BYTES, asleep))
    constants = [("CONTEXT_BYTES, CUDA of one process and a sleeping vLLM", *sizes)]
    print(section("Sleep and weight transfer (GB: in use on the GPU)", lines, constants))
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
