"""`python -m benchmarks.scale`: measure each method's step, and print tables of the figures."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.scale import table
from benchmarks.scale.cases import CASES
from benchmarks.scale.prepare import prepare

_REPO = Path(__file__).parents[2]
_SECONDS_PER_METHOD = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, default=Path("outputs/bench_scale"))
    parser.add_argument("--profile", action="store_true", help="keep what the event loops compute")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    result = measure_all(options.methods, options.out.resolve(), profile=options.profile)
    (options.out / "measured.json").write_text(json.dumps(result, indent=1) + "\n")
    text = table.methods_table(result)
    if "longvt" in result["methods"]:
        text = f"{table.measures_table(result)}\n{text}"
    (options.out / "tables.md").write_text(text)
    print(text)


def measure_all(methods: list[str], out: Path, *, profile: bool) -> dict[str, Any]:
    """Each method in processes of its own."""
    inputs = out / "inputs"
    prepare(inputs)

    def one(method: str, name: str, *arguments: str) -> Any:
        path = out / f"{name}.json"
        arguments += ("--profile",) if profile else ()
        _run("measure", out / f"{name}.log", method, "--inputs", str(inputs), "--out", str(path), *arguments)
        return json.loads(path.read_text())

    result: dict[str, Any] = {"methods": {method: one(method, method) for method in methods}}
    if "longvt" in methods:
        result["stock_front_end"] = one("longvt", "stock_front_end", "--front-end", "stock", "--rollouts", "4")
    path = out / "front_end.json"
    _run("front_end", out / "front_end.log", str(inputs / "qwen2_5_vl"), str(path))
    return result | {"front_end": json.loads(path.read_text())}


def _run(program: str, log: Path, *arguments: str) -> None:
    """Run a part of the benchmark in a process whose children, too, find this repository."""
    print(f"{log.stem} ...", flush=True)
    environment = os.environ | {"PYTHONPATH": str(_REPO), "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    with log.open("w") as file:
        process = subprocess.run(
            [sys.executable, "-m", f"benchmarks.scale.{program}", *arguments],
            cwd=_REPO,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS_PER_METHOD,
            check=False,
        )
    if process.returncode:
        sys.exit(f"bench-scale: {log.stem} failed; the end of {log}:\n{log.read_text()[-3000:]}")


if __name__ == "__main__":
    main()
