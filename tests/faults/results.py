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

from tests.faults.plan import CELLS, FAULTS, Cell
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
    lines = ["| fault | then the run | phase, and seconds until the last process has ended |", "|---|---|---|"]
    for name, fault in FAULTS.items():
        entries = (f"{moment.replace('_', ' ')}: {_seconds(Cell(name, moment), results)}" for moment in fault.moments)
        lines.append(f"| {fault.what} | {fault.outcome} | {', '.join(entries)} |")
    passed = [results[str(cell)].commit for cell in CELLS if str(cell) in results]
    at = ", ".join(f"{count} at `{commit}`" for commit, count in Counter(passed).most_common())
    return "\n".join([*lines, "", f"{len(passed)} of {len(CELLS)} cells have passed: {at or 'none yet'}."])


def _seconds(cell: Cell, results: dict[str, Result]) -> str:
    result = results.get(str(cell))
    return "not run" if result is None else f"{result.ended_seconds:.0f} s"


if __name__ == "__main__":
    print(table(load()))
