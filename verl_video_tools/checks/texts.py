"""What a policy may write: nothing, too much, other grammars, and valid turns spoilt at random places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

NUMBERS = (
    *("0", "-0", "-1", "7", "1.5", "99", "1e2", "1e999", "-1e999", "NaN", "Infinity", "007", "1_000", "1,5", "0x10"),
    *("٣", "²", "\uff12", "9" * 30, "9" * 400, "3:07", "65:20", "1/3", "true", "null", '"12"', "[1]", "{}", "-1e-9"),
)
PIECES = (
    *("<think>", "</think>", "<thinking>", "</thinking>", "<answer>", "</answer>", "<action>", "</action>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<|im_end|>", "<|image_pad|>", "<image>"),
    *("{", "}", "[", "]", '"', "'", "\\", ":", ",", "(", ")", "=", "<", ">", "/", "```json\n", "\n", "\r\n", "\t"),
    *("\x00", "\u200b", "\u202e", "\ufeff", "\ufffd", "\ud800", "\U0001f600", "é", "{frames}", "{0}", "%s", "{{", "}}"),
    *("A", "B", "(C)", "not B", "\\boxed{B}", "answer", "arguments", "name", '{"name": 1}', "__class__", "None"),
)
WHOLE = (
    *(
        "",
        " ",
        "\n",
        "\x00",
        "B",
        "A B C D",
        "The answer is B.",
        "<answer></answer>",
        "<answer>B",
        "</answer>B<answer>",
    ),
    *("<answer>A</answer><answer>B</answer>", "<think>", "<think></think>", "<tool_call></tool_call>", "\ud800"),
    *('<tool_call>{"name": null}</tool_call>', '<tool_call>{"name": "x", "arguments": [1]}</tool_call>', "{" * 500),
    *(
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name": ["x"]}</tool_call>',
        "<tool_call>" + "[" * 3000 + "</tool_call>",
    ),
    *('<tool_call>{"name": "x", "arguments": {"a": NaN}}</tool_call>', "<answer>" + "B" * 20_000 + "</answer>"),
)
"""Texts that no grammar was made for."""


def hostile_texts(turns: Sequence[str], count: int, seed: int = 0) -> Iterator[str]:
    """`WHOLE`, beginnings of `turns`, and `count` texts made of spoilt turns; the same ones every time."""
    yield from WHOLE
    for turn in turns:
        yield from (turn[:length] for length in range(0, len(turn), max(1, len(turn) // 60)))
        yield from (turn * 2, turn[::-1], turn.upper(), f"{turn}\n{turn}", turn.replace('"', "'"))
    random = Random(seed)
    for _ in range(count):
        yield spoilt(random, random.choice(turns) if turns else "", "".join(turns))


def spoilt(random: Random, text: str, others: str = "") -> str:
    """A text with scraps put in, cut out, doubled or replaced; `others` is text that is spliced in."""
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice((0, 0, 1, 2, 5, 20)))
        roll = random.randrange(6)
        if roll <= 1:
            put = random.choice(PIECES)
        elif roll == 2:
            put = random.choice(NUMBERS)
        elif roll == 3:
            put = ""
        elif roll == 4:
            put = text[start:end] * 2
        else:
            begin = random.randrange(len(others) + 1)
            put = others[begin : begin + random.randrange(40)]
        text = text[:start] + put + text[end:]
    return text
