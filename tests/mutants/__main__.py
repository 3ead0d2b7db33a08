"""Plants the faults of the table one at a time, in copies of the checkout, and counts those that the tests notice.

python -m tests.mutants [--only T1 A3] [--area tokens] [--jobs 2]

The exit status is 1 if the tests notice less than 95 % of them, or if the table has an error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.table import REPO, Mutant, read_table, table_errors

MIN_KILLED = 0.95
TIMEOUT_SECONDS = 300.0
WITHOUT_RAY = "not long and not integration and not recipes and not faults and not cluster and not gpu"


@dataclass(frozen=True)
class Outcome:
    """What the tests said of one mutant: `killed`, `survived`, or `error` where they could not be run."""

    mutant: Mutant
    verdict: str
    seconds: float
    message: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="ID", help="these mutants")
    parser.add_argument("--area", help="mutants of one TOML file, by its name without the ending")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time; one per core by default")
    arguments = parser.parse_args()
    table = read_table()
    chosen = [
        mutant
        for mutant in table
        if (not arguments.only or mutant.id in arguments.only) and arguments.area in (None, mutant.area)
    ]
    if errors := table_errors(table) or ([] if chosen else ["no such mutant"]):
        print(*errors, sep="\n")
        return 1
    outcomes = []
    for outcome in run(REPO, chosen, arguments.jobs):
        outcomes.append(outcome)
        mutant = outcome.mutant
        print(f"{outcome.verdict:8}  {mutant.id:6}  {outcome.seconds:5.1f} s  {outcome.message}", flush=True)
    print(report(outcomes))
    num_killed = sum(outcome.verdict == "killed" for outcome in outcomes)
    has_error = any(outcome.verdict == "error" for outcome in outcomes)
    return int(has_error or num_killed < MIN_KILLED * len(outcomes))


def run(repo: Path, mutants: Sequence[Mutant], jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order in which they come. The checkout itself is never changed.

    Raises:
        SystemExit: a named test fails without any fault.
    """
    with tempfile.TemporaryDirectory(prefix="mutants_") as folder, ThreadPoolExecutor(jobs) as executor:
        first = Path(folder) / "0"
        copy_checkout(repo, first)
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        status, output = run_tests(first, tests, timeout=None)
        if status != 0:
            raise SystemExit(f"{output}\nThese tests fail without any fault, so they could not show one.")
        copies: SimpleQueue[Path] = SimpleQueue()
        copies.put(first)
        for number in range(1, jobs):
            copies.put(shutil.copytree(first, Path(folder) / str(number), symlinks=True))  # with its compiled modules

        def plant(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                return run_mutant(copy, mutant)
            finally:
                copies.put(copy)

        try:
            for future in as_completed([executor.submit(plant, mutant) for mutant in mutants]):
                yield future.result()
        finally:
            executor.shutdown(cancel_futures=True)  # after Ctrl-C, not the rest of the table


def copy_checkout(repo: Path, target: Path) -> None:
    """Copy the files that git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(command, cwd=repo, text=True).split("\0"):
        if name and (repo / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repo / name, target / name)
    # The package of the copy has to come before the one that is installed.
    command = [sys.executable, "-c", "import verl_video_tools; print(verl_video_tools.__file__)"]
    found = subprocess.check_output(command, cwd=target, env=environment(target), text=True).strip()
    assert Path(found).is_relative_to(target), f"{found} would be tested instead of the copy in {target}"


def environment(copy: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(copy)}


def run_mutant(copy: Path, mutant: Mutant) -> Outcome:
    path = copy / mutant.file
    stat, before = path.stat(), path.read_text()
    started = time.perf_counter()
    path.write_text(before.replace(mutant.old, mutant.new))
    # Python knows a compiled module's source by its size and whole seconds: this one has to differ.
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 2 * 10**9))
    try:
        status, output = run_tests(copy, mutant.tests, TIMEOUT_SECONDS)
    finally:
        path.write_text(before)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # its compiled module is right again
    seconds = time.perf_counter() - started
    failures = [line for line in output.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))]
    if status is None:
        return Outcome(mutant, "killed", seconds, f"no end within {TIMEOUT_SECONDS:.0f} s")
    if status in (1, 2):  # a test failed; a test file could not be imported
        return Outcome(mutant, "killed", seconds, failures[0][:150] if failures else output[-150:])
    if status == 0:
        return Outcome(mutant, "survived", seconds, mutant.why)
    return Outcome(mutant, "error", seconds, f"pytest ended with status {status}: {output[-1000:]}")


def run_tests(copy: Path, tests: Sequence[str], timeout: float | None) -> tuple[int | None, str]:
    """pytest's exit status, None after `timeout` seconds, and its output."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests, "-m", WITHOUT_RAY]
    # A module compiled with a fault would be taken for the next one's, where both were written in one second.
    env = environment(copy) | ({} if timeout is None else {"PYTHONDONTWRITEBYTECODE": "1"})
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=copy, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        return status, log.read()


def report(outcomes: Sequence[Outcome]) -> str:
    """A table by area, then the survivors."""
    lines = [f"\n{'area':12}  mutants  killed   share"]
    areas = sorted({outcome.mutant.area for outcome in outcomes})
    for area in [*areas, "all"]:
        verdicts = [outcome.verdict for outcome in outcomes if area in (outcome.mutant.area, "all")]
        num_killed = verdicts.count("killed")
        lines.append(f"{area:12}  {len(verdicts):7}  {num_killed:6}  {num_killed / len(verdicts):6.1%}")
    for outcome in outcomes:
        if outcome.verdict != "killed":
            lines.append(f"{outcome.verdict}: {outcome.mutant.id} in {outcome.mutant.file}: {outcome.mutant.why}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
