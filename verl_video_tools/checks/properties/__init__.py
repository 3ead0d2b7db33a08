"""All properties by name, in the order in which they are asked: each after those that it requires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from verl_video_tools.checks.properties import (
    config,
    episode,
    grammar,
    groups,
    pickling,
    prompts,
    records,
    reward,
    tokens,
    tools,
)
from verl_video_tools.checks.registry import Property

_MODULES = (config, prompts, grammar, tools, episode, tokens, reward, groups, records, pickling)


def _written() -> Iterator[Property]:
    for module in _MODULES:
        yield from (value for value in vars(module).values() if isinstance(value, Property))


def _in_order(written: Mapping[str, Property]) -> dict[str, Property]:
    """As written, but for those that require later ones."""
    ordered: dict[str, Property] = {}

    def take(name: str) -> None:
        for required in written[name].requires:
            take(required)
        ordered.setdefault(name, written[name])

    for name in written:
        take(name)
    return ordered


PROPERTIES: Mapping[str, Property] = _in_order({each.name: each for each in _written()})
