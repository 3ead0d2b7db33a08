"""Rounds of random inputs; also shows one input again, and tells how many were run in all.

python -m tests.fuzz --minutes 10 [--surface turns]    # a round; its numbers go on where the last round ended
python -m tests.fuzz --surface turns --seed 0 --number 4711
python -m tests.fuzz --total
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.fuzz.rounds import Find, Round, run_apart, unique
from tests.fuzz.surface import SURFACES, load_surface

COUNTS = Path(__file__).with_name("counts.json")
"""By surface: what is counted, inputs so far, and the rounds with seed, numbers, inputs, seconds, finds and commit."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="shared among the surfaces")
    parser.add_argument("--surface", choices=[*SURFACES], action="append", help="one or more; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, help="show this one input of one surface again")
    parser.add_argument("--past", help="show this past find of one surface again")
    parser.add_argument("--total", action="store_true", help="what was run so far, as the table of docs/reliability.md")
    parser.add_argument("--counts", type=Path, default=COUNTS, help="file that the round is added to")
    arguments = parser.parse_args()
    surfaces = arguments.surface or [*SURFACES]
    if arguments.total:
        print(totals(read_counts(arguments.counts)))
        return 0
    if arguments.number is not None or arguments.past is not None:
        show(surfaces[0], arguments.seed, arguments.number, arguments.past)
        return 0
    seconds = arguments.minutes * 60 / len(surfaces)
    finds: list[Find] = []
    print(f"{'surface':10} {'inputs':>9} {'per s':>8} {'finds':>6}")
    for name in surfaces:
        first = next_number(read_counts(arguments.counts), name, arguments.seed)
        found = run_apart(name, arguments.seed, first, seconds=seconds)
        found.finds = list(unique(found.finds))
        rate = found.inputs / max(found.seconds, 1e-9)
        print(f"{name:10} {found.inputs:9} {rate:8.0f} {len(found.finds):6}", flush=True)
        finds += found.finds
        counts = read_counts(arguments.counts)  # once more: another round may have ended meanwhile
        add(counts, name, arguments.seed, first, found)
        arguments.counts.write_text(json.dumps(counts, indent=1) + "\n")
    for find in finds:
        print(f"\n{find.place}\n{find.error}\n  {find.command}")
    return 1 if finds else 0


def show(name: str, seed: int, number: int | None, past: str | None) -> None:
    """Print an input, and hand it over; what escapes is raised."""
    with tempfile.TemporaryDirectory() as folder, load_surface(name, Path(folder)) as surface:
        case = surface.input(seed, number) if number is not None else surface.corpus()[str(past)]
        print(json.dumps(case, indent=1))
        surface.check(case)
        print("handled rightly")


def read_counts(path: Path) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return counts


def next_number(counts: dict[str, Any], name: str, seed: int) -> int:
    """Where the rounds of a seed have ended."""
    return max((one["next"] for one in counts.get(name, {}).get("rounds", []) if one["seed"] == seed), default=0)


def add(counts: dict[str, Any], name: str, seed: int, first: int, found: Round) -> None:
    kept = counts.setdefault(name, {"inputs": 0, "rounds": []})
    kept["inputs"] += found.inputs
    kept["rounds"].append(
        {
            "commit": commit(),
            "seed": seed,
            "first": first,
            "next": found.next_number,
            "inputs": found.inputs,
            "seconds": round(found.seconds),
            "finds": len(found.finds),
        }
    )


def commit() -> str:
    """Of the code that was run; with a + where it was changed since."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=9", "--exclude=*"]
    return (
        subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip() or "unknown"
    )


def totals(counts: dict[str, Any]) -> str:
    """A table in Markdown."""
    lines = ["| surface | counted | inputs | inputs per second | rounds with a find |", "|---|---|---|---|---|"]
    for name, path in SURFACES.items():
        rounds = counts.get(name, {}).get("rounds", [])
        inputs, seconds = sum(one["inputs"] for one in rounds), sum(one["seconds"] for one in rounds)
        with_finds = sum(bool(one["finds"]) for one in rounds)
        lines.append(f"| {name} | {unit(path)} | {inputs:,} | {inputs / max(seconds, 1):,.0f} | {with_finds} |")
    return "\n".join(lines)


def unit(path: str) -> str:
    import importlib

    module, _, attribute = path.partition(":")
    return str(getattr(importlib.import_module(module), attribute).unit)


if __name__ == "__main__":
    sys.exit(main())
