"""Which of the recorded rollouts to look at, where there are more than a page takes.

Records can be larger than memory: of a rollout that was read only its place stays, and what it is ordered by.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.records.records import Place, read_places
from verl_video_tools.video import linspace_indices


@dataclass(frozen=True)
class Entry:
    """What a rollout is ordered by.

    Attributes:
        step: -1 where none was recorded.
        group: of rollouts that are compared with each other.
        index: of the row; infinite where it has none.
        session: number in the group.
        position: among all that were read.
    """

    place: Place
    step: float
    group: Hashable
    method: str
    index: float
    session: float
    position: int


def read_entries(records: Path, read: Callable[[int], None]) -> list[Entry]:
    """Entries of all rollouts.

    Args:
        records: as `read_records` takes them.
        read: called with the number of rollouts read so far.

    Raises:
        UsageError: a line cannot be read.
    """
    entries: list[Entry] = []
    for place, line in read_places(records):
        entries.append(_entry_of(place, line, len(entries)))
        read(len(entries))
    return entries


def sample(entries: Iterable[Entry], count: int) -> list[Entry]:
    """At most `count` rollouts, in order of step, method, row and number in the group.

    Groups stay whole. The last steps come first. Of a step that does not fit whole, groups are taken that are spread
    evenly over its rows. A group larger than `count` is cut where it would be the only one.
    """
    steps: dict[float, dict[Hashable, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in sorted(entries, key=lambda entry: (entry.session, entry.position)):
        steps[entry.step][entry.group].append(entry)
    chosen: list[Entry] = []
    for _, members in sorted(steps.items(), reverse=True):
        groups = sorted(members.values(), key=lambda group: _row(group[0]))
        spread = _spread(groups, count - len(chosen))
        if not (chosen or spread):
            return groups[0][:count]
        chosen += [entry for group in spread for entry in group]
        if len(spread) < len(groups):
            break
    # Sorting keeps the order within rows.
    return sorted(chosen, key=lambda entry: (entry.step, *_row(entry)[:2]))


def _spread(groups: Sequence[Sequence[Entry]], room: int) -> list[Sequence[Entry]]:
    """As many groups as fit, evenly spread."""
    for count in range(min(len(groups), room), 0, -1):
        spread = [groups[position] for position in linspace_indices(0, len(groups) - 1, count)]
        if sum(map(len, spread)) <= room:
            return spread
    return []


def _row(entry: Entry) -> tuple[str, float, int]:
    return entry.method, entry.index, entry.position


def _entry_of(place: Place, line: Mapping[str, Any], position: int) -> Entry:
    """What a recorded line is ordered by."""

    def number(value: Any, otherwise: float) -> float:
        return value if isinstance(value, int | float) and math.isfinite(value) else otherwise

    uid = line.get("uid")
    return Entry(
        place,
        step=number(line.get("step"), -1),
        group=position if uid is None else str(uid),
        method=line["trajectory"].method,
        index=number((line.get("extra_info") or {}).get("index"), math.inf),
        session=number(line.get("session_id"), math.inf),
        position=position,
    )
