"""What two real engines generate from our front end's requests, beside what they generate from vLLM's own.

    VERL_PLATFORM=cpu python -m tests.integration.front_end_tokens MODEL_DIR [TIE [GPU_SHARE]]

Rollouts run at the same time; each takes several turns of greedy tokens, adds images after each, and stays on one of
two engines. The same engines, emptied, then get the same rollouts through the other front end, and at last with each
message's images in reversed order, which has to show.

Prints one JSON object: how many tokens were compared, the largest difference of two log-probabilities, that of reversed
images, which rollouts ended in a tie (the two best tokens within TIE, by default 1e-5), which differed, and how many
tokens of later turns each side had in its prefix cache. GPU_SHARE is the part of a GPU's memory for each engine.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

from tests.integration.front_end_requests import SIZES, Reference
from verl_video_tools.verl_plugin.images import SentImages, image_name
from verl_video_tools.verl_plugin.vllm_front_end import FrontEnd

NUM_REPLICAS, NUM_GROUPS, GROUP_SIZE, NUM_TURNS = 2, 3, 4, 4
TIE = 1e-5


@dataclass
class Turn:
    """Tokens of one turn, with the log-probability of each, and of the best other one."""

    token_ids: list[int]
    logprobs: list[float]
    runners_up: list[float]
    num_cached: int


@dataclass
class Rollout:
    """One that shows `messages[n]`, each of several images, before turn n."""

    replica: int
    messages: list[list[np.ndarray]]
    question: list[int]
    turns: list[Turn] = field(default_factory=list)


def rollouts(tokenizer: Any) -> list[Rollout]:
    draw, noise = random.Random(0), np.random.default_rng(0)

    def images(number: int) -> list[np.ndarray]:
        return [noise.integers(0, 256, (*draw.choice(SIZES), 3), dtype=np.uint8) for _ in range(number)]

    found = []
    for group in range(NUM_GROUPS):
        initial = images(8)
        for member in range(GROUP_SIZE):
            messages = [initial] + [images(draw.randrange(1, 4)) for _ in range(1, NUM_TURNS)]
            found.append(Rollout(group % NUM_REPLICAS, messages, tokenizer.encode(f"Question {group}, try {member}.")))
    return found


async def run(rollout: Rollout, engine: Any, name: str, markers: list[int], *, sends_references: bool) -> list[Turn]:
    start, pad, end = markers
    params = SamplingParams(temperature=0, max_tokens=6, logprobs=2, ignore_eos=True)
    ids, shown, turns = list(rollout.question), [], []
    for number, message in enumerate(rollout.messages):
        shown.append(message)
        ids += [start, pad, end] * len(message)
        if sends_references:
            data = [SentImages(Reference(each), 0, tuple(map(image_name, each))) for each in shown]
        else:
            data = [Image.fromarray(array) for each in shown for array in each]
        prompt = {"prompt_token_ids": list(ids), "multi_modal_data": {"image": data}}
        async for output in engine.generate(prompt=prompt, sampling_params=params, request_id=f"{name}-{number}"):
            last, num_cached = output.outputs[0], output.num_cached_tokens or 0
        token_ids = list(last.token_ids)
        pairs = list(zip(token_ids, last.logprobs, strict=True))
        others = [max(entry.logprob for token, entry in best.items() if token != chosen) for chosen, best in pairs]
        turns.append(Turn(token_ids, [best[chosen].logprob for chosen, best in pairs], others, num_cached))
        ids += token_ids
    return turns


def compare(expected: list[Turn], found: list[Turn], tie: float = TIE) -> tuple[float, int, str]:
    """Largest difference of log-probabilities, number of tokens compared, and "", "tie" or "differs"."""
    largest, number = 0.0, 0
    for theirs, ours in zip(expected, found, strict=True):
        for i, token in enumerate(theirs.token_ids):
            largest = max(largest, abs(theirs.logprobs[i] - ours.logprobs[i]))
            number += 1
            if token != ours.token_ids[i]:
                return largest, number, "tie" if theirs.logprobs[i] - theirs.runners_up[i] <= tie else "differs"
    return largest, number, ""


async def main(model_dir: str, tie: float = TIE, gpu_share: float | None = None) -> dict[str, Any]:
    arguments = AsyncEngineArgs(
        model_dir,
        max_model_len=2048,
        enforce_eager=True,
        dtype="float32",
        limit_mm_per_prompt={"image": 64, "video": 0},
        enable_prefix_caching=True,
        **({} if gpu_share is None else {"gpu_memory_utilization": gpu_share}),
    )
    engines = [AsyncLLM.from_engine_args(arguments) for _ in range(NUM_REPLICAS)]
    try:
        tokenizer = engines[0].renderer.get_tokenizer()
        markers = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])
        found = {}
        front_ends = [FrontEnd(engine) for engine in engines]
        for side, replicas in {"stock": engines, "ours": front_ends, "reversed": front_ends}.items():
            asked = rollouts(tokenizer)
            if side == "reversed":
                for each in asked:
                    each.messages = [message[::-1] for message in each.messages]
            found[side] = await asyncio.gather(
                *(
                    run(each, replicas[each.replica], f"{side}-{i}", markers, sends_references=side != "stock")
                    for i, each in enumerate(asked)
                )
            )
            for engine in engines:
                await engine.reset_prefix_cache()
                await engine.reset_mm_cache()
    finally:
        for engine in engines:
            engine.shutdown()
    compared = [compare(*pair, tie) for pair in zip(found["stock"], found["ours"], strict=True)]
    return {
        "num_tokens": sum(number for _, number, _ in compared),
        "largest_difference": max(difference for difference, _, _ in compared),
        "difference_of_reversed": max(compare(*pair)[0] for pair in zip(found["ours"], found["reversed"], strict=True)),
        "cached_tokens": {
            side: sum(turn.num_cached for turns in found[side] for turn in turns[1:]) for side in ("stock", "ours")
        },
        "ties": [i for i, (_, _, verdict) in enumerate(compared) if verdict == "tie"],
        "differing": [i for i, (_, _, verdict) in enumerate(compared) if verdict == "differs"],
    }


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    print(json.dumps(asyncio.run(main(folder, *map(float, numbers)))))
