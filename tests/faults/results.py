"""Results of the cells, kept from one sitting to the next.

    python -m tests.faults.results

prints the table of docs/reliability.md.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.moments import MOMENTS
from tests.faults.plan import CELLS, FAULTS, IMPOSSIBLE, Cell
from verl_video_tools.core.files import whole_file

REPO = Path(__file__).parents[2]
PATH = Path(__file__).with_name("results.json")
RELEVANT = ("verl_video_tools/verl_plugin", "verl_video_tools/records/records.py", "recipes", "requirements")
"""What decides whether a cell has to run again."""


@dataclass(frozen=True)
class Result:
    """Of one cell that has passed.

    Attributes:
        ended_seconds: from the fault to the end of the last process; of a run that goes on, to its own end.
        run_seconds: of the run with the fault, which may have resumed after another one.
        resumed_seconds: until the run that resumes has done a step; None where nothing ended.
        commit: at which it ran.
    """

    ended_seconds: float
    run_seconds: float
    resumed_seconds: float | None
    commit: str


def load(path: Path = PATH) -> dict[str, Result]:
    return {name: Result(**values) for name, values in json.loads(path.read_text()).items()} if path.exists() else {}


def keep(cell: Cell, result: Result, path: Path = PATH) -> None:
    results = {**load(path), str(cell): result}
    order = [str(known) for known in CELLS]
    with whole_file(path) as partial:
        ordered = {name: asdict(results[name]) for name in order if name in results}
        partial.write_text(json.dumps(ordered, indent=1) + "\n")


def commit() -> str:
    """The commit that is checked out; where what matters differs from it, it says so."""
    head = _git("rev-parse", "--short=10", "HEAD").stdout.strip()
    return head if _equals(head) else f"{head}-dirty"


def is_current(result: Result) -> bool:
    """Whether nothing that matters has changed since; never where it ran on changes that were not committed."""
    return _equals(result.commit)


def _equals(revision: str) -> bool:
    return _git("diff", "--quiet", revision, "--", *RELEVANT).returncode == 0


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=REPO, capture_output=True, text=True, check=False)


def table(results: dict[str, Result]) -> str:
    """The page's table: seconds from the fault to the end, where a cell has run."""
    lines = [
        f"| fault | then the run | {' | '.join(moment.replace('_', ' ') for moment in MOMENTS)} |",
        f"|---|---|{'---|' * len(MOMENTS)}",
    ]
    for name, fault in FAULTS.items():
        row = [_entry(Cell(name, moment), results) for moment in MOMENTS]
        lines.append(f"| {fault.what} | {fault.outcome} | {' | '.join(row)} |")
    commits = Counter(result.commit for result in results.values())
    at = ", ".join(f"{count} at `{commit}`" for commit, count in commits.most_common())
    lines += ["", f"{len(results)} of {len(CELLS)} cells have passed: {at or 'none yet'}.", ""]
    lines += [
        f"- {fault.what}: in no other moment, since {fault.elsewhere}." for fault in FAULTS.values() if fault.elsewhere
    ]
    lines += [f"- {name}: {reason}." for name, reason in IMPOSSIBLE.items()]
    return "\n".join(lines)


def _entry(cell: Cell, results: dict[str, Result]) -> str:
    if cell not in CELLS:
        return "n/a"
    if result := results.get(str(cell)):
        return f"{result.ended_seconds:.0f} s"
    return "-"


if __name__ == "__main__":
    print(table(load()))
