"""The first hour on a GPU: every check, two GRPO steps with real weights, and a page of what was measured.

    make first-gpu MODEL=/models/Qwen2.5-VL-7B-Instruct
    python -m benchmarks.first_gpu --only attention,memory,pinned

doctor     `vvt doctor`
attention  packed attention without flash-attn: speed, and its difference from unpacked attention
memory     an update at published widths with few layers and verl's fused head, against the plan
pinned     host memory of copies that torch pins, against the plan
tests      tests/gpu
sleep      vLLM sleeps, and gets its weights through verl's own sender and receiver
rows       a video of real size, and rows about it
grpo       two steps of the method's recipe; with an adapter (LoRA) where all weights do not fit
actor      `python -m benchmarks.gpu_model`: the actor's parts at real lengths

`attention`, `memory` and `pinned` need no weights and neither verl, vLLM nor Ray. Each part has a limit of time; after
one that fails the next goes on. All of it writes to outputs/first_gpu, the page is page.md. Without a GPU the parts run
that need none, with small sizes, and the page lists the rest as waiting. The exit code is 1 where a part failed.
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

LIMITS_SECONDS = {
    "doctor": 180,
    "attention": 120,
    "memory": 240,
    "pinned": 60,
    "tests": 1200,
    "sleep": 420,
    "rows": 180,
    "grpo": 1500,
    "actor": 600,
}
"""In order; 75 minutes in all."""
WITHOUT_GPU = ("doctor", "attention", "memory", "pinned", "actor")
WITHOUT_WEIGHTS = ("doctor", "attention", "memory", "pinned", "tests")
METHODS = ("framethinker", "longvt", "videozoomer", "videobrain", "framemind")


def make_stages(names: Sequence[str], run: grpo.GrpoRun | None, folder: Path) -> list[Stage]:
    """The named ones, in order.

    Args:
        run: with the weights. Without it only those that need none are there, and `actor` with the tiny model.
    """
    python = sys.executable
    tests = ["pytest", "-v", "--durations=0", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"]
    modules = {
        "doctor": ["verl_video_tools.cli", "doctor", "--json"],
        "attention": ["benchmarks.first_gpu.attention"],
        "memory": ["benchmarks.gpu_model.memory", "--fused"],
        "pinned": ["benchmarks.first_gpu.pinned"],
        "tests": tests,
        "actor": ["benchmarks.gpu_model", "--model", run.model if run else "tiny", "--out", str(folder / "actor.json")],
    }
    if run:
        modules["sleep"] = ["benchmarks.first_gpu.sleep", run.model]
        modules["rows"] = ["benchmarks.first_gpu.rows", str(folder / "rows"), run.method, str(run.num_rows)]
    stages = {name: Stage(name, [python, "-m", *module], LIMITS_SECONDS[name]) for name, module in modules.items()}
    if run:
        stages["grpo"] = grpo.grpo_stage(run, folder, LIMITS_SECONDS["grpo"])
    return [stages[name] for name in LIMITS_SECONDS if name in names]


def go(
    machine: Machine, run: grpo.GrpoRun | None, stages: Sequence[Stage], waiting: Sequence[str], folder: Path
) -> bool:
    """Run the stages and write the page, anew after each of them; whether all ended well."""
    outcomes: list[Outcome] = []
    sections: list[str] = []
    for stage in stages:
        print(f"{stage.name}: at most {stage.limit_seconds:.0f} s ...", flush=True)
        with UsedMemory() if stage.name == "grpo" else nullcontext() as used:
            outcomes.append(run_stage(stage, folder))
        print(f"{stage.name}: {outcomes[-1].status} after {outcomes[-1].seconds:.0f} s", flush=True)
        if used and run:
            sections = page.grpo_steps(run, *figures.read_or_tell(run, folder / "grpo", used.most_bytes))
        text = page.render(machine, run, outcomes, waiting, sections)
        (folder / "page.md").write_text(text, encoding="utf-8")
    return all(outcome.status == "ok" for outcome in outcomes)


def parts(text: str) -> list[str]:
    """Names with commas between them; ArgumentTypeError where one is no part."""
    names = text.split(",")
    if unknown := [name for name in names if name not in LIMITS_SECONDS]:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; parts are {','.join(LIMITS_SECONDS)}")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder with real weights, or their name on the hub")
    parser.add_argument("--method", choices=METHODS, default="framethinker")
    parser.add_argument("--only", type=parts, default=list(LIMITS_SECONDS), help="parts, with commas between them")
    parser.add_argument("--out", type=Path, default=Path("outputs/first_gpu"))
    options = parser.parse_args(arguments)
    machine = describe()
    names = [name for name in LIMITS_SECONDS if name in options.only]
    waiting = [] if machine.gpus else [name for name in names if name not in WITHOUT_GPU]
    names = [name for name in names if name not in waiting]
    need_weights = [name for name in names if name not in WITHOUT_WEIGHTS]
    if machine.planned_as and need_weights and not options.model:
        print(
            f"first-gpu: no weights for {', '.join(need_weights)}; make first-gpu "
            f"MODEL=/models/Qwen2.5-VL-7B-Instruct, or --only {','.join(WITHOUT_WEIGHTS)}",
            file=sys.stderr,
        )
        return 2
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for old in (folder / "grpo").glob(LOG_NAMES):
        old.unlink()  # of an earlier hour
    run = None
    if machine.planned_as and need_weights:
        # Steps run in the repository's folder.
        model = str(Path(options.model).resolve()) if Path(options.model).is_dir() else options.model
        run = grpo.plan_run(options.method, model, machine.planned_as, len(machine.gpus))
    all_well = go(machine, run, make_stages(names, run, folder), waiting, folder)
    print(f"\n{(folder / 'page.md').read_text(encoding='utf-8')}\n{folder / 'page.md'}")
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
