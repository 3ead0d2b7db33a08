"""`python -m benchmarks.scale`: measure, compare with what was measured before, write JSON, tables and a picture."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.scale import constants, critical_path, picture, summary, table
from benchmarks.scale.cases import CASES
from benchmarks.scale.prepare import prepare

_FOLDER = Path(__file__).parent
_DOCS = _FOLDER.parents[1] / "docs"
_SECONDS_PER_METHOD = 600
_BEGIN, _END = "<!-- bench-scale -->", "<!-- end of bench-scale -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rollouts", type=int, help="of a group; the recipe's number otherwise")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench_scale"))
    parser.add_argument("--before", type=Path, default=_FOLDER / "before.json")
    parser.add_argument("--code", type=Path, help="another tree of the repository, whose package is measured instead")
    parser.add_argument("--profile", action="store_true", help="keep what the event loops compute")
    parser.add_argument("--docs", action="store_true", help="put tables and picture into docs/scale.md")
    parser.add_argument("--measured", type=Path, help="tables and picture of an earlier result, without measuring")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.measured:
        after = json.loads(options.measured.read_text())
    else:
        after = measure_all(options)
        (options.out / "measured.json").write_text(json.dumps(after, indent=1) + "\n")
    before = json.loads(options.before.read_text())
    text = report(before, after, options.out)
    if options.docs:
        into_docs(text, options.out / "steps.svg")


def measure_all(options: argparse.Namespace) -> dict[str, Any]:
    """Each method in processes of its own."""
    inputs = (options.out / "inputs").resolve()
    prepare(inputs)

    def one(method: str, name: str, *arguments: str) -> Any:
        print(f"{name} ...", flush=True)
        out = options.out.resolve() / f"{name}.json"
        arguments += ("--profile",) if options.profile else ()
        _child(options, "measure", name, method, "--inputs", str(inputs), "--out", str(out), *arguments)
        return json.loads(out.read_text())

    def rollouts(method: str) -> str:
        return str(options.rollouts or CASES[method].group_size)

    methods = {method: one(method, method, "--rollouts", rollouts(method)) for method in options.methods}
    result = {"commit": next(iter(methods.values()))["commit"], "methods": methods}
    if "longvt" in methods and not options.code:
        few = str(min(4, int(rollouts("longvt"))))
        result["stock_front_end"] = one("longvt", "stock_front_end", "--front-end", "stock", "--rollouts", few)
    print("vLLM's front end ...", flush=True)
    out = options.out.resolve() / "front_end.json"
    _child(options, "front_end", "front_end", str(inputs / "qwen2_5_vl"), str(out))
    return result | {"front_end": json.loads(out.read_text())}


def report(before: dict[str, Any], after: dict[str, Any], folder: Path) -> str:
    """Write `result.json`, `tables.md` and `steps.svg`; print the tables and return them."""
    steps = []
    for name, measured in after["methods"].items():
        if name in before["methods"]:
            works: dict[critical_path.Version, Any] = {"before": before["methods"][name], "after": measured}
            size = summary.step_size(measured)
            steps += critical_path.all_steps(size, {key: summary.host_work(value) for key, value in works.items()})
    text = ""
    if "longvt" in after["methods"]:
        text += table.measures_table(before, after) + "\n"
    text += table.methods_table(before, after)
    for speed in constants.GPU_SPEEDS:
        text += f"\nGPUs at {speed:g} times the constants:\n\n" + table.steps_table(steps, speed)
    (folder / "tables.md").write_text(text)
    (folder / "result.json").write_text(json.dumps({"before": before, "after": after, "steps": steps}, indent=1) + "\n")
    picture.draw(steps, folder / "steps.svg", nodes=constants.NODES)
    print(text)
    return text


def into_docs(text: str, drawn: Path) -> None:
    """Replace the tables and the picture of the page."""
    page = _DOCS / "scale.md"
    head, rest = page.read_text().split(_BEGIN)
    page.write_text(f"{head}{_BEGIN}\n\n{text}\n{_END}{rest.split(_END)[1]}")
    (_DOCS / "images" / "scale.svg").write_bytes(drawn.read_bytes())


def _child(options: argparse.Namespace, program: str, name: str, *arguments: str) -> None:
    """Run a part in a process that finds the package to be measured first."""
    code = (options.code or Path.cwd()).resolve()
    path = os.pathsep.join([str(code), str(_FOLDER.parent.resolve())])
    environment = os.environ | {"PYTHONPATH": path, "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    if not (code / "verl_video_tools" / "verl_plugin").exists():  # the installed entry point names a module it lacks
        environment["VERL_USE_EXTERNAL_MODULES"] = "verl_video_tools.plugin"
    log = options.out / f"{name}.log"
    with log.open("w") as file:
        process = subprocess.run(
            [sys.executable, "-m", f"scale.{program}", *arguments],
            cwd=code,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS_PER_METHOD,
            check=False,
        )
    if process.returncode:
        sys.exit(f"bench-scale: {name} failed; the end of {log}:\n{log.read_text()[-3000:]}")


if __name__ == "__main__":
    main()
