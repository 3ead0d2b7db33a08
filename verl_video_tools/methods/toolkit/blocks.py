"""Find `<tag>…</tag>` blocks in what a model wrote, in linear time whatever the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """One closed block: `inner` is the text between the tags, `start` and `end` bound it with its tags."""

    inner: str
    start: int
    end: int


def find_blocks(text: str, tag: str) -> list[Block]:
    """Every closed `<tag>…</tag>` block from left to right.

    A block runs from an opening tag to the nearest closing tag after it, so blocks do not nest.
    """
    return find_between(text, f"<{tag}>", f"</{tag}>")


def find_between(text: str, opening: str, closing: str) -> list[Block]:
    """Every stretch from an `opening` to the nearest `closing` after it, from left to right without overlap.

    A regular expression would say the same, but takes quadratic time on a policy that repeats an opening tag for ever.
    """
    blocks: list[Block] = []
    position = 0
    while (start := text.find(opening, position)) >= 0:
        stop = text.find(closing, start + len(opening))
        if stop < 0:
            break
        position = stop + len(closing)
        blocks.append(Block(text[start + len(opening) : stop], start, position))
    return blocks


def without_blocks(text: str, blocks: Sequence[Block]) -> str:
    """`text` with each block replaced by a space, so that its neighbours do not join to a tag.

    Args:
        blocks: from left to right, without overlap.
    """
    parts, position = [], 0
    for block in blocks:
        parts.append(text[position : block.start])
        position = block.end
    return " ".join([*parts, text[position:]])
