"""Two GRPO steps with the tiny model: engine and actor agree, about merged adapters and with either front end.

Not yet run on a GPU. The recipe with these options on a CPU: tests/integration/test_lora.py and test_grpo.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.first_gpu.figures import GAP_BOUND
from tests.integration.conftest import MAX_PROBS_DIFF, Run, assert_succeeded, run_recipe
from verl_video_tools.records.report import LOG_NAMES, Steps, read_log
from verl_video_tools.synthetic import base_model_dir

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1300)]

NUM_STEPS = 2
KINDS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "vllms_front_end": ({"VVT_VLLM_FRONT_END": "stock"}, ()),
    "merged_adapter": (
        {},
        (
            "+video_tools/lora=merged_grpo",
            "actor_rollout_ref.model.lora_rank=4",
            "actor_rollout_ref.actor.optim.lr=1e-2",
        ),
    ),
}
"""Variables and options of each."""


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, device: str) -> Run:
    """The adapter's large learning rate makes the second step's weights others than the first one's."""
    variables, kind_options = KINDS[request.param]
    environment = {
        "DEVICE": "cpu" if device == "cpu" else "gpu",
        "MODEL_PATH": str(base_model_dir()),
        **variables,
    }
    options = (
        "--synthetic",
        "actor_rollout_ref.rollout.n=4",
        "data.train_batch_size=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "trainer.save_freq=-1",
        f"trainer.total_training_steps={NUM_STEPS}",
        *kind_options,
    )
    found = run_recipe(request.param, "framethinker_grpo", tmp_path_factory.mktemp("gpu"), *options, **environment)
    assert_succeeded(found)
    return found


def steps_of(folder: Path) -> Steps:
    (log,) = folder.glob(LOG_NAMES)
    return {step: values for step, values in read_log(log).items() if "timing_s/step" in values}


def test_engine_and_actor_agree_in_both_steps(run: Run, device: str) -> None:
    steps = steps_of(run.folder)
    assert len(steps) == NUM_STEPS
    gaps = [values["training/rollout_probs_diff_mean"] for values in steps.values()]
    assert max(gaps) <= (MAX_PROBS_DIFF if device == "cpu" else GAP_BOUND), gaps


def test_prompts_are_found_in_the_cache_and_memory_is_counted(run: Run, device: str) -> None:
    steps = steps_of(run.folder)
    assert all(values["prefix/cached_tokens"] > 0 for values in steps.values()), steps
    if device == "cuda":
        assert all(values["actor/perf/max_memory_allocated_gb"] > 0 for values in steps.values()), steps
