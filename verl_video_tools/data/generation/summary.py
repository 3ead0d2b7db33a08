"""What a file of generated rollouts holds, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_video_tools.core.types import Trajectory

Key = tuple[str, int]
"""What a rollout is known by in its file: `uid` and `session_id`."""


RolloutProgress = Callable[[int, int, str], None]
"""Is called with the number of rollouts done and wanted, and `GenerationSummary.so_far`."""


@dataclass
class GenerationSummary:
    """What a file of records holds; a rollout that was made again counts as it ended last.

    Attributes:
        is_graded: False: some rollouts earn nothing, whatever they answer.
    """

    is_graded: bool = True
    records: dict[Key, tuple[float, int, str, tuple[str, ...]]] = field(default_factory=dict)
    templates: dict[Key, tuple[str, bool]] = field(default_factory=dict)
    """Of rollouts that were to take a form: which, and whether they did."""
    num_flagged: int = field(default=0, init=False)
    _num_right: float = field(default=0.0, init=False)

    def add(self, record: Mapping[str, Any]) -> None:
        trajectory: Trajectory = record["trajectory"]
        acc, num_calls = float(record["reward"]["acc"]), len(trajectory.executed_calls())
        key = str(record["uid"]), int(record["session_id"])
        if key in self.records:
            self._count(key, -1)
        self.records[key] = acc, num_calls, str(trajectory.stop_reason), tuple(trajectory.flags)
        self._count(key, 1)
        if record.get("template") is not None:
            self.templates[key] = record["template"], record["template_fault"] is None and not trajectory.flags

    def _count(self, key: Key, times: int) -> None:
        acc, *_, flags = self.records[key]
        self.num_flagged += times * bool(flags)
        self._num_right += 0.0 if flags else times * acc

    @property
    def accuracy(self) -> float:
        """Share of right answers among the rollouts that are not flagged; 0.0 where there is none."""
        return self._num_right / max(1, len(self.records) - self.num_flagged)

    @property
    def so_far(self) -> str:
        """What tells whether to go on filling the file: `accuracy 0.617, 2 flagged`, each part where there is one."""
        accuracy = [f"accuracy {self.accuracy:.3f}"] if self.is_graded and self.num_flagged < len(self.records) else []
        return ", ".join([*accuracy, *([f"{self.num_flagged} flagged"] if self.num_flagged else [])])

    def __str__(self) -> str:
        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{name}: {count}" for name, count in counts.most_common()) or "none"

        num_calls = [num_calls for _, num_calls, _, flags in self.records.values() if not flags]
        stops = Counter(stop for _, _, stop, flags in self.records.values() if not flags)
        failures = Counter(flag for *_, flags in self.records.values() for flag in flags[:1])
        return (
            f"{len(self.records)} rollouts, accuracy {self.accuracy:.3f}, "
            f"{sum(num_calls) / max(1, len(num_calls)):.2f} executed calls per rollout; "
            f"ended by {listed(stops)}; failures {listed(failures)}{self._listed_templates()}"
        )

    def _listed_templates(self) -> str:
        wanted = Counter(name for name, _ in self.templates.values())
        kept = Counter(name for name, is_kept in self.templates.values() if is_kept)
        counts = ", ".join(f"{name}: {kept[name]} of {wanted[name]}" for name in sorted(wanted))
        return f"; templates kept {counts}" if counts else ""
