"""Hostile text: what models, rows and replies are spoilt with."""

from __future__ import annotations

from random import Random
from typing import Any

NUMBERS = [
    *["0", "-0", "-1", "1", "2", "7", "0.5", "1.5", "99", "100", "100.0", "1e2", "1e999", "-1e999", "1e-320", "NaN"],
    *["Infinity", "-Infinity", "007", "+3", "1_000", "1,5", "0x10", "\u0663", "\u00b2", "\uff12", "9" * 30, "9" * 400],
    *["3:07", "0:00", "65:20", "1/3", "true", "null", '"12"', "[1]", "{}", "1.0000000000000000001", "-1e-9"],
]
PIECES = [
    *["<think>", "</think>", "<thinking>", "</thinking>", "<answer>", "</answer>", "<action>", "</action>"],
    *["<tool_call>", "</tool_call>", "<video_zoom>", "</video_zoom>", "<turn_sum>", "</turn_sum>", "<tool_response>"],
    *["<|im_end|>", "<|im_start|>user\n", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<image>", "</s>"],
    *["{", "}", "[", "]", '"', "'", "\\", ":", ",", "(", ")", "=", ";", "<", ">", "/", "|", "`", "```json\n", "#"],
    *[
        "\n",
        "\r\n",
        "\t",
        " ",
        "\x00",
        "\x1b[2J",
        "\u200b",
        "\u202e",
        "\ufeff",
        "\ufffd",
        "\ud800",
        "\U0001f600",
        "e\u0301",
    ],
    *["{frames}", "{0}", "%s", "${x}", "{{", "}}", "../../etc/passwd", "file:///etc/passwd", "http://127.0.0.1:1/x"],
    *['{"label": "correct"}', "Verdict: correct", "output answer: B", "choose frames between 1 and 9", "\\boxed{B}"],
    *["A", "B", "The answer is B.", "not B", "(C)", "start_frame", "prompt", "arguments", "name", "segment", "fps"],
    *["FrameAt(1)", "VideoClip(1, 2)", "crop_video", "uniform_sample", "clip_sample", "__class__", "NaN", "null"],
]
LONG_PIECES = ["[", "{", '{"a":', "(", "<think>", "<answer>", '"', "\\", " ", "\n", "9", "$", "```", "A. ", "e\u0301"]


def piece(random: Random) -> str:
    """A scrap of text; now and then a long one."""
    roll = random.random()
    if roll < 0.002:
        return random.choice(LONG_PIECES) * random.choice((100, 2_000, 20_000))
    if roll < 0.1:
        return chr(random.randrange(0x20, 0x3000))
    return random.choice(NUMBERS if roll < 0.3 else PIECES)


def mutated(random: Random, text: str, others: str = "") -> str:
    """A text with none, some or many scraps put in, cut out, doubled, swapped or replaced.

    Args:
        others: text of which stretches are spliced in.
    """
    for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 5, 12))):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice((0, 0, 1, 1, 2, 4, 9, 30)))
        roll = random.randrange(7)
        if roll <= 2:
            put = piece(random)
        elif roll == 3:
            put = ""
        elif roll == 4:
            put = text[start:end] * 2
        elif roll == 5:
            put = text[start:end].swapcase()
        else:
            begin = random.randrange(len(others) + 1)
            put = others[begin : begin + random.randrange(40)]
        text = text[:start] + put + text[end:]
    return text[: random.randrange(len(text) + 1)] if random.random() < 0.04 else text


def number(random: Random, top: float) -> Any:
    """A number near what a call may hold, or an odd one as JSON reads it."""
    roll = random.random()
    if roll < 0.45:
        return round(random.uniform(0, top), random.choice((0, 1, 2)))
    if roll < 0.75:
        return random.randrange(int(top) + 2)
    if roll < 0.9:
        return random.choice((0, -1, top, top + 1, top - 0.01, -0.5, 0.0, 1e-9, 1e18, -1e300, 10**30, 2**63))
    return value(random)


def value(random: Random, depth: int = 0) -> Any:
    """Any value of JSON, and those that only Python's JSON has."""
    kinds = [None, True, False, 0, -1, 2.5, float("nan"), float("inf"), 10**25, "", "A", "12", "1e3", "\ud800", "\x00"]
    if depth > 2 or random.random() < 0.6:
        return random.choice(kinds) if random.random() < 0.6 else piece(random)
    if random.random() < 0.5:
        return [value(random, depth + 1) for _ in range(random.randrange(4))]
    return {str(value(random, 3)): value(random, depth + 1) for _ in range(random.randrange(4))}
