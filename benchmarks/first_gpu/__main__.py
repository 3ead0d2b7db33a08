"""The first hour on a GPU: every check, two GRPO steps with real weights, and a page of what was found.

    make first-gpu MODEL=/models/Qwen2.5-VL-7B-Instruct
    python -m benchmarks.first_gpu --model FOLDER --only doctor rows grpo

doctor   `vvt doctor`
tests    tests/gpu
rows     a video of real size, and rows about it
grpo     two steps of the method's recipe; with an adapter (LoRA) where all weights do not fit
actor    `python -m benchmarks.gpu_model`: the actor's parts at real lengths

Each has a limit of time; one that fails is told, and the next goes on. All of it writes to outputs/first_gpu, the page
is page.md. `--rehearse` runs the same on the CPU with the tiny model, and says nothing about a GPU. The exit code is 1
where a step failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks.first_gpu import figures, grpo, page
from benchmarks.first_gpu.machine import Machine, UsedMemory, describe
from benchmarks.first_gpu.stages import Outcome, Stage, run_stage
from verl_video_tools.records.report import LOG_NAMES
from verl_video_tools.synthetic import base_model_dir

LIMITS_SECONDS = {"doctor": 180, "tests": 1200, "rows": 180, "grpo": 1500, "actor": 600}
"""An hour in all."""
METHODS = ("framethinker", "longvt", "videozoomer", "videobrain", "framemind")


def make_stages(run: grpo.GrpoRun, folder: Path, *, rehearse: bool) -> list[Stage]:
    """In order. A rehearsal's recipe makes rows of its own."""
    limits, python = LIMITS_SECONDS, sys.executable
    environment = {"DEVICE": "cpu", "VVT_TEST_DEVICE": "cpu"} if rehearse else {"DEVICE": "gpu"}
    tests = [python, "-m", "pytest", "-v", "--durations=0", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"]
    actor = [python, "-m", "benchmarks.gpu_model", "--out", str(folder / "actor.json")]
    actor += ["--model", "tiny" if rehearse else run.model]
    stages = [
        Stage("doctor", [python, "-m", "verl_video_tools.cli", "doctor", "--json"], limits["doctor"], environment),
        Stage("tests", tests, limits["tests"], environment),
        grpo.rows_stage(run, folder, limits["rows"]),
        grpo.grpo_stage(run, folder, limits["grpo"], rehearse=rehearse),
        Stage("actor", actor, limits["actor"]),
    ]
    return [stage for stage in stages if stage.name != "rows" or not rehearse]


def go(machine: Machine, run: grpo.GrpoRun, stages: Sequence[Stage], folder: Path) -> bool:
    """Run the stages and write the page, anew after each of them; whether all ended well."""
    outcomes: list[Outcome] = []
    used_bytes = 0.0
    for stage in stages:
        print(f"{stage.name}: at most {stage.limit_seconds:.0f} s ...", flush=True)
        with UsedMemory() if stage.name == "grpo" else nullcontext() as used:
            outcomes.append(run_stage(stage, folder))
        used_bytes = used.most_bytes if used else used_bytes
        print(f"{stage.name}: {outcomes[-1].status} after {outcomes[-1].seconds:.0f} s", flush=True)
        found, why_none = figures.read_or_tell(run, folder / "grpo", used_bytes)
        text = page.render(machine, run, outcomes, found, why_none)
        (folder / "page.md").write_text(text, encoding="utf-8")
    return all(outcome.status == "ok" for outcome in outcomes)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder with real weights, or their name on the hub")
    parser.add_argument("--method", choices=METHODS, default="framethinker")
    parser.add_argument("--only", nargs="+", choices=LIMITS_SECONDS, default=list(LIMITS_SECONDS))
    parser.add_argument("--out", type=Path, default=Path("outputs/first_gpu"))
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with the tiny model")
    options = parser.parse_args(arguments)
    machine = describe()
    if not options.rehearse and not machine.gpus:
        print("first-gpu: nvidia-smi lists no GPU; --rehearse runs the same on the CPU", file=sys.stderr)
        return 1
    if not options.rehearse and not options.model:
        print("first-gpu: no weights; make first-gpu MODEL=/models/Qwen2.5-VL-7B-Instruct", file=sys.stderr)
        return 2
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for old in (folder / "grpo").glob(LOG_NAMES):
        old.unlink()  # of an earlier hour
    model = str(base_model_dir()) if options.rehearse else options.model
    if Path(model).is_dir():
        model = str(Path(model).resolve())  # steps run in the repository's folder
    gpu = None if options.rehearse else machine.planned_as
    run = grpo.plan_run(options.method, model, gpu, 1 if options.rehearse else len(machine.gpus))
    stages = [each for each in make_stages(run, folder, rehearse=options.rehearse) if each.name in options.only]
    all_well = go(machine, run, stages, folder)
    print(f"\n{(folder / 'page.md').read_text(encoding='utf-8')}\n{folder / 'page.md'}")
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
