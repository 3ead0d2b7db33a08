"""Real GRPO steps of methods that only tests have: one whose turns are sequences of their own, and one that compares
its groups. Both are in one run, since most of a run's time is its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import context_method, group_method
from tests.integration.conftest import Run, assert_succeeded, run_recipe, write_rows
from verl_video_tools.records.records import read_records

GROUP_SIZE, GROUPS_PER_STEP, NUM_STEPS = 4, 4, 2
"""Of each method."""
WANTED_RATE, LENGTH_WEIGHT = 0.9, 0.25
_GROUP_FIELDS = (
    f"wanted_rate={WANTED_RATE}",
    f"length_weight={LENGTH_WEIGHT}",
    "frames_per_rollout=[8,8,8,120]",  # more than the prompt may hold: each fourth rollout is flagged
)


def run_methods(name: str, methods: tuple[str, ...], output_dir: Path, sft_model: Path, *options: str) -> Run:
    """Two steps with four groups of each of these methods; tokens are kept."""

    def rename(number: int, row: dict[str, Any]) -> None:
        row["agent_name"] = methods[number // GROUPS_PER_STEP % len(methods)]  # the recipe keeps the rows' order

    rows = write_rows(output_dir, f"{name}.parquet", "framethinker", rename)
    prompt = output_dir / "demo_mixed" / "prompts" / "framethinker.txt"
    fields = {method: [f"prompt_file={prompt}", "max_turn_tokens=96"] for method in methods}
    fields[group_method.NAME] += _GROUP_FIELDS
    run = run_recipe(
        name,
        "mixed_grpo",
        output_dir,
        f"trainer.total_training_steps={NUM_STEPS}",
        "video_tools.trainer.record_tokens=True",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={Path(__file__).with_name('method_loops.yaml')}",
        *(f"+video_tools.{method}.{field}" for method, given in fields.items() for field in given),
        f"data.train_batch_size={GROUPS_PER_STEP * len(methods)}",
        f"actor_rollout_ref.rollout.n={GROUP_SIZE}",
        *("data.max_prompt_length=1024", "data.max_response_length=256"),
        *options,
        TRAIN_FILES=rows,
        VAL_FILES=rows,
        MODEL_PATH=str(sft_model),
        VERL_USE_EXTERNAL_MODULES="tests.integration.method_registration",
    )
    assert_succeeded(run)
    return run


def synchronous_run(output_dir: Path, sft_model: Path) -> Run:
    """Of both methods, a sequence per turn."""
    methods = (context_method.NAME, group_method.NAME)
    options = [f"+video_tools.{method}.context=last_evidence" for method in methods]
    return run_methods("methods", methods, output_dir, sft_model, *options)


def lines_of(run: Run, method: str) -> list[dict[str, Any]]:
    """A method's recorded rollouts; `tests.conftest` makes it known."""
    return [line for line in read_records(run.folder / "trajectories") if line["trajectory"].method == method]
