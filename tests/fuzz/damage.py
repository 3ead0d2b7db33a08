"""Damage to the bytes of files, as values that JSON can carry."""

from __future__ import annotations

import base64
from random import Random
from typing import Any


def damages(
    random: Random, kinds: tuple[str, ...] = ("cut", "flip", "put", "noise", "drop", "zeros", "odd")
) -> list[Any]:
    """One to three damages: a kind, where (a share of the file), and what."""
    return [
        [kind, _share(random), random.choice((1, 1, 2, 4, 8, 64, 1000)), random.randrange(1 << 30)]
        for kind in random.choices(kinds, k=random.choice((1, 1, 1, 2, 3)))
    ]


def _share(random: Random) -> float:
    """Heads and tails of files are where most of what they say of themselves stands."""
    return random.choice((random.random(), random.random() ** 6, 1 - random.random() ** 6))


def damaged(data: bytes, damages: list[Any]) -> bytes:
    """The bytes of a file with the damages done to it."""
    for kind, share, length, seed in damages:
        place = min(len(data), int(share * len(data)))
        end = min(len(data), place + length)
        random = Random(seed)
        if kind == "cut":
            data = data[:place]
        elif kind == "flip" and place < len(data):
            data = data[:place] + bytes([data[place] ^ (1 << random.randrange(8))]) + data[place + 1 :]
        elif kind == "put":
            data = data[:place] + random.randbytes(length) + data[place:]
        elif kind == "noise":
            data = data[:place] + random.randbytes(end - place) + data[end:]
        elif kind == "drop":
            data = data[:place] + data[end:]
        elif kind == "zeros":
            data = data[:place] + bytes(end - place) + data[end:]
        elif kind == "odd":  # numbers of a header: none, the largest, a negative one
            number = random.choice((b"\0" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7))
            data = data[:place] + number + data[place + 8 :]
    return data


def text_of(data: bytes, times: int = 1) -> list[Any]:
    """Bytes that are repeated, as JSON."""
    return [base64.b64encode(data).decode(), times]


def bytes_of(written: list[Any]) -> bytes:
    text, times = written
    return base64.b64decode(text) * times
