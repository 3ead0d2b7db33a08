"""Every recipe on every machine with GPUs that it has a group for: verl accepts it, and its sizes can be divided."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from omegaconf import DictConfig
from verl.utils.config import omega_conf_to_dataclass

from tests.recipes.options import DOCS, Composed, grpo_recipes, program_of, script_arguments, sft_recipes
from tests.recorded.configurations import MACHINES, WITHOUT_SMALL
from verl_video_tools.launch.checks.report import PlannedRun, Status
from verl_video_tools.launch.checks.run import check_group, check_options, check_sizes
from verl_video_tools.launch.plan import actor_memory, estimate_config, find_gpu

pytestmark = pytest.mark.slow

OF_PAPERS = ("framethinker_grpo", "videozoomer_grpo", "longvt_grpo", "videobrain_grpo", "framemind_grpo")
NODES_GB = (512, 1024, 2048)
WITHOUT_GPUS = ("cpu", "no_gpu", "float32")
OF_THE_TINY_MODEL = ("synthetic", "gpu_smoke_test")


def machines_of(recipe: str) -> Iterator[str]:
    """Names of machines, the program left out: for all methods, and for the recipe's own."""
    method, program = recipe.rpartition("_")[0], program_of(recipe)
    all_methods = {name.split("_")[0] for name in (*grpo_recipes(), *sft_recipes())} - {"direct"}
    for path in sorted(MACHINES.glob(f"*_{program}.yaml")):
        name = path.stem.removesuffix(f"_{program}")
        others = {other for other in all_methods - {method} if name.endswith(f"_{other}")}
        is_too_small = recipe in WITHOUT_SMALL and name.startswith("4x48gb")
        if not (others or is_too_small or name.startswith((*WITHOUT_GPUS, *OF_THE_TINY_MODEL))):
            yield name


RUNS = [(recipe, machine) for recipe in (*grpo_recipes(), *sft_recipes()) for machine in machines_of(recipe)]


MEMORY_TABLE = [
    (recipe, machine)
    for recipe, machine in RUNS
    if recipe in OF_PAPERS and not (MACHINES / f"{machine}_{recipe}.yaml").exists()  # else its own file of that machine
]


def test_all_machines_are_tried() -> None:
    tried = {f"{machine}_{program_of(recipe)}" for recipe, machine in RUNS}
    left_out = (*WITHOUT_GPUS, *OF_THE_TINY_MODEL)
    assert tried == {path.stem for path in MACHINES.glob("*.yaml") if not path.stem.startswith(left_out)}


@pytest.mark.parametrize(("recipe", "machine"), RUNS)
def test_a_recipe_on_a_machine(recipe: str, machine: str, composed: Composed) -> None:
    program = program_of(recipe)
    config = composed(recipe, "gpu", f"+video_tools/machine={machine}_{program}")
    check_run(PlannedRun(program, config, "gpu", thorough=False))


@pytest.mark.parametrize("recipe", [name for name in grpo_recipes() if script_arguments(name)[0] == "grpo"])
def test_a_recipe_on_one_gpu_with_the_tiny_model(recipe: str, composed: Composed) -> None:
    for flag in ("--synthetic", "--smoke-test"):
        check_run(PlannedRun("grpo", composed(recipe, "gpu", flag), "gpu", thorough=False))


@pytest.mark.parametrize(("recipe", "machine"), MEMORY_TABLE)
def test_the_page_has_the_memory_of_a_method_on_a_machine(recipe: str, machine: str, composed: Composed) -> None:
    row = memory_row(recipe, machine, composed(recipe, "gpu", f"+video_tools/machine={machine}_grpo"))
    assert row in (DOCS / "memory.md").read_text(encoding="utf-8"), row


def memory_row(recipe: str, machine: str, config: DictConfig) -> str:
    """Of the table in docs/memory.md, by the plan with the longest rollouts that the limits allow."""
    gpu = find_gpu("l40s" if machine.startswith("4x48gb") else "h100")
    estimate = estimate_config(config, gpu, math.inf)

    def update_bytes(**changes: int) -> float:
        options, num_gpus = replace(estimate.options, **changes), estimate.cluster.num_gpus
        return actor_memory(estimate.model, options, estimate.workload, num_gpus, options.longest_tokens).total

    sizes = (
        update_bytes(fused_head=True),
        update_bytes(fused_head=True, ulysses=4),
        update_bytes(fused_head=False),
        estimate.host.total,
        estimate.host.shm,
    )
    update, *others = (f"{size / 1e9:.0f}" for size in sizes)
    nodes = ["yes" if estimate.host.total <= size * 1e9 else "no" for size in NODES_GB]
    cells = [f"{update} of {gpu.memory_bytes / 1e9:.0f}", *others, *nodes]
    return f"| `{recipe.removesuffix('_grpo')}` | `{machine}` | {' | '.join(cells)} |"


def check_run(run: PlannedRun) -> None:
    if run.program == "grpo":
        checks = [*check_options(run), *check_group(run)]
    else:
        checks = []
        for section in (run.config.engine, run.config.optim):  # whose classes verl makes of them at its start
            omega_conf_to_dataclass(section)
    problems = [check for check in (*checks, *check_sizes(run)) if check.status is not Status.OK]
    assert not problems
