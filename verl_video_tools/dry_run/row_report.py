"""What is wrong with rows, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_NUM_NAMED = 3


def problems_in_words(problems: Mapping[str, Sequence[str]]) -> str:
    """The first few rows with their problems, and how many others there are.

    Args:
        problems: of each row that has some, by the row's label.
    """
    named = [f"{label}: {'; '.join(found)}" for label, found in list(problems.items())[:_NUM_NAMED]]
    more = len(problems) - len(named)
    return "; ".join([*named, *([f"and {more} others"] if more else [])])


def counted(number: int) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} row{'' if number == 1 else 's'}"
