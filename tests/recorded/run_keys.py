"""Keys of what a training run leaves behind: its records of trajectories and the metrics that it logs.

The committed keys come from a run of LongVT (`make learn METHOD=longvt`); records of all methods have the same keys.
What has come since then stands below, by name.
Objects whose keys depend on rows, tools or settings count as one value (`FREE`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

TYPES = {dict: "object", list: "list", str: "text", bool: "flag", int: "integer", float: "float", type(None): "null"}
FREE = {
    "extra_info",
    "trajectory.settings",
    "trajectory.turns[].calls[].arguments",
    "trajectory.turns[].calls[].result",
}
WITH_TOKENS = {
    "sequences": ["list"],
    "sequences[]": ["object"],
    **{
        f"sequences[].{name}{end}": kinds
        for name, kind in {
            "prompts": "integer",
            "response_mask": "integer",
            "advantages": "float",
            "responses": "integer",
            "old_log_probs": "float",
            "rollout_log_probs": "float",
        }.items()
        for end, kinds in (("", ["list"]), ("[]", [kind]))
    },
}
"""Keys that `trainer.video_tools.record_tokens` adds, from the code that writes them: the recorded run had them off."""

ADDED_RECORD_KEYS = {
    "num_cached_tokens": ["integer"],
    "num_sampled_tokens": ["integer"],
    "reward.unread": ["float"],
}
ADDED_METRICS = [
    *("payload/bytes", "payload/shared_bytes", "prefix/cached_tokens", "rollout/unread", "router/max_over_mean"),
]

OURS = (
    *("rollout/", "video_tools/", "tool/", "stop/", "frames/", "tokens/", "cache/", "invariant/", "group/", "judge/"),
    *("payload/", "prefix/", "router/"),
)
"""Beginnings of the names of metrics that are not verl's."""


def record_keys(lines: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Types by key over all lines of records; `a.b` is an entry of an object, `a[]` an element of a list."""
    kinds: dict[str, set[str]] = {}

    def visit(value: Any, key: str) -> None:
        if key:
            kinds.setdefault(key, set()).add(TYPES[type(value)])
        if isinstance(value, dict) and key not in FREE:
            for name, member in value.items():
                visit(member, f"{key}.{name}" if key else name)
        for member in value if isinstance(value, list) and key not in FREE else ():
            visit(member, f"{key}[]")

    for line in lines:
        visit(line, "")
    return {key: sorted(found) for key, found in sorted(kinds.items())}


def metric_names(names: Iterable[str]) -> list[str]:
    """Names of our metrics, tools and error codes of calls as `*`: a policy chooses which of them occur."""
    ours = {name for name in names if name.startswith(OURS)}
    ours = {re.sub(r"^tool/error/.+$", "tool/error/*", name) for name in ours}
    return sorted({re.sub(r"^tool/(?!error/)[^/]+/", "tool/*/", name) for name in ours})


def logged_names(log: str) -> set[str]:
    """Names in the lines `step:1 - name:value - ...` of verl's console logger."""
    steps = [line.partition("step:")[2] for line in log.splitlines() if re.search(r"\bstep:\d+ - ", line)]
    return {part.rpartition(":")[0] for step in steps for part in step.split(" - ")[1:]}


def record_differences(recorded: Mapping[str, Iterable[str]], found: Mapping[str, Iterable[str]]) -> list[str]:
    """How the keys of a run differ from the recorded ones, one text each.

    Keys inside lists and objects that were always empty or null may lack in a short run; types may be fewer. A value
    that was null in all of the recorded run may be of any type.
    """
    told = [f"{key} is new" for key in found if key not in recorded and not _inside_null(key, recorded)]
    for key, kinds in recorded.items():
        parent = re.sub(r"(\[\]|\.?[^.\[\]]+)$", "", key)
        if key not in found:
            # An element of a list that was empty in this run, or an entry of an object that was null.
            if not key.endswith("[]") and (not parent or "object" in found.get(parent, ())):
                told.append(f"{key} is missing")
        elif set(kinds) != {"null"} and (other := set(found[key]) - set(kinds) - {"null"}):
            told.append(f"{key} is {', '.join(sorted(other))}, was {', '.join(kinds)}")
    return sorted(told)


def metric_differences(
    recorded: Iterable[str], found: Iterable[str], methods: Mapping[str, Iterable[str]]
) -> list[str]:
    """How the names of our metrics differ from the recorded ones, one text each.

    Args:
        recorded: names of a run of any method.
        found: names of a run of `methods`.
        methods: names under which the reward of each method of the run is broken down.
    """
    expected = {name for name in recorded if not name.startswith("video_tools/")}
    for method, components in methods.items():
        expected |= {f"video_tools/{method}/{name}/mean" for name in ("score", "acc", *components)}
    found = set(found)
    optional = {name for name in expected | found if name.startswith("tool/") and "*" in name}
    optional |= {name for name in found if name.startswith("judge/")}  # only where questions are open
    return [f"{name} is missing" for name in sorted(expected - found - optional)] + [
        f"{name} is new" for name in sorted(found - expected - optional)
    ]


def _inside_null(key: str, recorded: Mapping[str, Iterable[str]]) -> bool:
    """Whether `key` is an element of a list that was empty in all of the recorded run."""
    return any(
        f"{outer}[]" not in recorded and "list" in kinds and key.startswith(f"{outer}[]")
        for outer, kinds in recorded.items()
    )
