"""The step of each method that is measured: its recipe's settings for real data, and what the policy says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

SCRIPT_VARIABLE = "VVT_BENCH_SCRIPT"
"""Path of a JSON file that tells the engine core's process what to say: `turns`, token ids by variant and turn;
`num_initial`, images of a rollout's first prompt."""
VIDEO_SECONDS = 600
VIDEO_FPS = 2
VIDEO_SIZE = (640, 384)
"""Width and height; LongVT shows it at 280x168."""
WARM_UP_SECONDS = 170
WARM_UP_SIZE = (560, 336)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One method at full size per rollout.

    Attributes:
        group_size: rollouts of a question.
        num_groups: questions of a step.
        turn: what the policy of rollout `variant` says in turn `number`, counted from 0; the last turn is `answer`.
        num_calls: turns before the answer.
        pixels: bounds of an image's area that the recipe hands to the model's processor.
        processor_cache_gb: of each inference server.
    """

    method: str
    family: str = "qwen2_5_vl"
    group_size: int
    num_groups: int
    prompt_length: int
    response_length: int
    max_model_len: int
    max_num_batched_tokens: int = 32_768
    max_images: int
    pixels: tuple[int, int]
    num_calls: int
    turn: Callable[[int, int], str]
    answer: str
    num_initial: int
    processor_cache_gb: float = 4.0

    def turns(self, variant: int) -> list[str]:
        return [self.turn(variant, number) for number in range(self.num_calls)] + [self.answer]


_THOUGHT = "the frames shown so far do not tell what happens here, so this part of the video is looked at more closely"


def _start(variant: int, number: int, seconds: int) -> int:
    """Where rollout `variant` looks in its turn `number`: no two rollouts at the same frames."""
    return (variant * 31 + number * 97) % (VIDEO_SECONDS - seconds - 1)


def _crop(variant: int, number: int) -> str:
    start = _start(variant, number, 60)
    call = {"name": "crop_video", "arguments": {"start_time": start, "end_time": start + 59.5}}
    return f"<think>{_THOUGHT}</think>\n<tool_call>\n{json.dumps(call)}\n</tool_call>"


def _zoom(variant: int, number: int) -> str:
    start = _start(variant, number, 16)
    return f'<think>{_THOUGHT}</think><video_zoom>{{"segment": [{start}, {start + 16}], "fps": 1}}</video_zoom>'


def _choose(variant: int, number: int) -> str:
    start = _start(variant, number, 60) * VIDEO_FPS
    end = start + 100
    return f"<think>{_THOUGHT}: {start} {end}</think><action>choose frames between {start} and {end}</action>"


def _sample(variant: int, number: int) -> str:
    start = _start(variant, number, 60) * VIDEO_FPS
    call = {"name": "uniform_sample", "arguments": {"start_frame": start, "end_frame": start + 100}}
    return f"<thinking>{_THOUGHT}</thinking><tool_call>{json.dumps(call)}</tool_call>"


def _clip(variant: int, number: int) -> str:
    start = _start(variant, number, 20)
    call = f"VideoClip({start}.0, {start + 20}.0)"
    return f"<think>{_THOUGHT}</think><tool_call>{call}</tool_call><turn_sum>more is needed</turn_sum>"


CASES: dict[str, Case] = {
    case.method: case
    for case in (
        Case(
            method="longvt",
            group_size=16,
            num_groups=16,
            prompt_length=40_960,
            # The tiny tokenizer writes each digit of a time as a token of its own: 2,048 tokens more than the recipe.
            response_length=18_432,
            max_model_len=61_440,
            max_num_batched_tokens=61_440,
            max_images=1152,
            pixels=(784, 50_176),
            num_calls=4,
            turn=_crop,
            answer="<think>seen</think>\n<answer>B</answer>",
            num_initial=512,
        ),
        Case(
            method="videozoomer",
            group_size=16,
            num_groups=128,
            prompt_length=20_480,
            response_length=32_768,
            max_model_len=53_248,
            max_images=128,
            pixels=(25_088, 100_352),
            num_calls=4,
            turn=_zoom,
            answer="<think>seen</think><answer>B</answer>",
            num_initial=64,
        ),
        Case(
            method="framethinker",
            group_size=8,
            num_groups=32,
            prompt_length=8192,
            response_length=8192,
            max_model_len=32_768,
            max_images=60,
            pixels=(3136, 235_200),
            num_calls=2,
            turn=_choose,
            answer="<think>seen</think><action>output answer: B</action>",
            num_initial=12,
        ),
        Case(
            method="videobrain",
            family="qwen3_vl",
            group_size=8,
            num_groups=32,
            prompt_length=8192,
            response_length=16_384,
            max_model_len=32_768,
            max_images=56,
            pixels=(4096, 235_200),
            num_calls=5,
            turn=_sample,
            answer="<thinking>seen</thinking><answer>B</answer>",
            num_initial=16,
        ),
        Case(
            method="framemind",
            group_size=8,
            num_groups=64,
            prompt_length=12_288,
            response_length=16_384,
            max_model_len=32_768,
            max_num_batched_tokens=65_536,
            max_images=128,
            pixels=(50_176, 200_704),
            num_calls=2,
            turn=_clip,
            answer="<think>seen</think><answer>B</answer>",
            num_initial=64,
        ),
    )
}
