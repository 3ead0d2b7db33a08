"""What a file of generated rollouts holds, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_video_tools.core.types import Trajectory

Key = tuple[str, int]
"""What a rollout is known by in its file: `uid` and `session_id`."""


@dataclass
class GenerationSummary:
    """What a file of records holds; a rollout that was made again counts as it ended last."""

    records: dict[Key, tuple[float, int, str, tuple[str, ...]]] = field(default_factory=dict)
    templates: dict[Key, tuple[str, bool]] = field(default_factory=dict)
    """Of rollouts that were to take a form: which, and whether they did."""

    def add(self, record: Mapping[str, Any]) -> None:
        trajectory: Trajectory = record["trajectory"]
        acc, num_calls = float(record["reward"]["acc"]), len(trajectory.executed_calls())
        key = str(record["uid"]), int(record["session_id"])
        self.records[key] = acc, num_calls, str(trajectory.stop_reason), tuple(trajectory.flags)
        if record.get("template") is not None:
            self.templates[key] = record["template"], record["template_fault"] is None and not trajectory.flags

    @property
    def num_flagged(self) -> int:
        return sum(bool(flags) for *_, flags in self.records.values())

    @property
    def accuracy(self) -> float:
        """Share of right answers among the rollouts that are not flagged; 0.0 where there is none."""
        accs = [acc for acc, *_, flags in self.records.values() if not flags]
        return sum(accs) / max(1, len(accs))

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
