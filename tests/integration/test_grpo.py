"""What three real GRPO steps must show. Faults are planted in copies of their records, to show what notices them.

| fault | noticed by |
|---|---|
| shifted mask or log-probabilities, other tokens of the same text | the engine's requests (`engine_requests`) |
| missing or swapped images, a sampled placeholder | the same |
| shuffled or missing images, features of another one, stale weights | the engine beside plain transformers (`parity`) |
| one-dimensional positions | the actor beside plain transformers |
| a lost rollout that counts in its group | advantages by hand |

`test_planted_faults` plants some of these in a real run.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from tests.integration.advantages import assert_advantages_of_groups
from tests.integration.conftest import GROUP_SIZE, MAX_PROBS_DIFF, NUM_STEPS, Run
from tests.integration.engine_requests import NOTICED, Request, Requests, Tokens, by_prompt, differences
from tests.integration.parity import Fault, compare, load, pictures, response_logprobs, summarise
from tests.recorded.record import DATA
from tests.recorded.run_keys import (
    ADDED_METRICS,
    ADDED_RECORD_KEYS,
    WITH_TOKENS,
    logged_names,
    metric_differences,
    metric_names,
    record_differences,
    record_keys,
)
from verl_video_tools.core.types import Sample
from verl_video_tools.methods import get_method
from verl_video_tools.methods.framemind import resolution_ladder
from verl_video_tools.records.records import read_records
from verl_video_tools.verl_plugin.images import image_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

METHODS = ("framethinker", "videozoomer", "longvt", "videobrain", "framemind")
GRADING = {"framethinker": {"answer_grading": "choice"}}
"""Fields that decide about rewards, as config/video_tools/synthetic sets them."""


COMPONENTS = {
    "framethinker": ("accuracy", "action_bonus", "format", "ccv"),
    "videozoomer": ("accuracy", "format", "tool"),
    "longvt": ("accuracy", "format", "temporal_iou"),
    "videobrain": ("accuracy", "format", "behavior"),
    "framemind": ("accuracy", "format", "tool", "turn"),
}
"""Names under which each method's reward is logged."""


@pytest.fixture(scope="module")
def lines(grpo_run: Run) -> list[dict]:
    return list(read_records(grpo_run.folder / "trajectories"))


def of_step(lines: list[dict], step: int) -> list[dict]:
    return [line for line in lines if line["step"] == step]


def parity(lines: list[dict], policy: Path, reference: str = "rollout_log_probs", fault=None, banned: bool = True):
    image_id = load(policy)[1].image_token_id
    pairs = [
        compare(line, response_logprobs(policy, line, banned=banned, fault=fault), reference, image_id)
        for line in lines
    ]
    return summarise(pairs)


def with_observation(lines: list[dict]) -> list[dict]:
    return [line for line in lines if line["trajectory"].counts()["tool_frames"] > 0]


def test_the_recipe_ends_with_table_records_and_a_model(grpo_run: Run, lines: list[dict]) -> None:
    assert "executed calls per rollout" in grpo_run.log
    assert str(grpo_run.folder / "trajectories") in grpo_run.log.replace("\n", "")
    assert {line["step"] for line in lines} == set(range(1, NUM_STEPS + 1))
    for step in range(1, NUM_STEPS + 1):
        methods = Counter(line["trajectory"].method for line in of_step(lines, step))
        assert methods == dict.fromkeys(METHODS, GROUP_SIZE)
    assert (grpo_run.folder / "huggingface" / "config.json").exists()


def test_calls_are_executed_and_groups_differ(lines: list[dict]) -> None:
    first = of_step(lines, 1)  # later steps are those of a deliberately too large learning rate
    executed = np.mean([line["trajectory"].counts()["executed_calls"] for line in first])
    assert executed >= 0.3, f"{executed} executed calls per rollout"
    groups = defaultdict(set)
    for line in lines:
        groups[line["uid"]].add(line["reward"]["score"])
    unequal = np.mean([len(scores) > 1 for scores in groups.values()])
    assert unequal >= 0.25, f"{unequal:.0%} of the groups have unequal rewards"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_executes_calls(lines: list[dict], method: str) -> None:
    """In several of its 24 rollouts: a single one may be luck."""
    calls = [
        [call for call in line["trajectory"].executed_calls() if call.frames]
        for line in lines
        if line["trajectory"].method == method
    ]
    assert sum(map(bool, calls)) >= 2


def test_groups_never_mix_methods(lines: list[dict]) -> None:
    groups = defaultdict(list)
    for line in lines:
        groups[line["step"], line["uid"]].append(line)
    for members in groups.values():
        assert len({line["trajectory"].method for line in members}) == 1
        assert sorted(line["session_id"] for line in members) == list(range(GROUP_SIZE))


def test_every_rung_is_present_once_per_group(lines: list[dict]) -> None:
    groups = defaultdict(list)
    for line in lines:
        if line["trajectory"].method == "framemind":
            frames = line["trajectory"].initial_frames
            groups[line["step"], line["uid"]].append((line["session_id"], len(frames), frames[0].width))
    assert len(groups) == NUM_STEPS
    ladder = resolution_ladder(GROUP_SIZE, low=(8, 56), high=(4, 112))  # config/video_tools/synthetic/framemind.yaml
    sides = [round(side / 28) * 28 for _, side in ladder]  # as the processor takes them
    expected = [(number, frames, side) for number, ((frames, _), side) in enumerate(zip(ladder, sides, strict=True))]
    assert all(sorted(group) == expected for group in groups.values()), (groups, expected)


def test_engine_and_actor_agree_on_the_first_step(lines: list[dict], policies: list[Path]) -> None:
    result = parity(of_step(lines, 1), policies[0])
    assert result.num_before > 50 and result.num_after > 50, result
    assert result.before <= MAX_PROBS_DIFF and result.after <= MAX_PROBS_DIFF, result


def test_verls_actor_agrees_with_plain_transformers(lines: list[dict], policies: list[Path]) -> None:
    result = parity(of_step(lines, 1), policies[0], reference="old_log_probs", banned=False)
    assert result.before <= MAX_PROBS_DIFF and result.after <= MAX_PROBS_DIFF, result


@pytest.mark.parametrize("fault", ["images_shuffled", "image_dropped", "features_of_first_image"])
def test_other_images_in_the_engine_are_noticed(lines: list[dict], policies: list[Path], fault: Fault) -> None:
    result = parity(with_observation(of_step(lines, 1))[::4], policies[0], fault=fault)
    assert result.num_after > 50, result
    assert result.after > 10 * MAX_PROBS_DIFF, result


def test_flat_positions_in_the_actor_are_noticed(lines: list[dict], policies: list[Path]) -> None:
    chosen = with_observation(of_step(lines, 1))[::4]
    result = parity(chosen, policies[0], "old_log_probs", "one_dimensional_positions", banned=False)
    assert result.after > 10 * MAX_PROBS_DIFF, result


def test_parity_holds_after_a_large_step(lines: list[dict], policies: list[Path]) -> None:
    for step in range(2, NUM_STEPS + 1):
        result = parity(of_step(lines, step)[::2], policies[step - 1])
        assert max(result.before, result.after) <= MAX_PROBS_DIFF, (step, result)


def test_stale_weights_are_seen(lines: list[dict], policies: list[Path]) -> None:
    result = parity(of_step(lines, 2)[::4], policies[0])
    assert max(result.before, result.after) > 10 * MAX_PROBS_DIFF, result


def test_weights_changed(policies: list[Path]) -> None:
    before, after = (load_file(folder / "model.safetensors") for folder in policies[:2])
    changed = [name for name in before if not before[name].float().equal(after[name].float())]
    assert len(changed) > 0.9 * len(before), f"{len(changed)} of {len(before)} tensors changed"


@pytest.fixture(scope="module")
def requests(grpo_run: Run) -> list[Request]:
    text = (grpo_run.folder.parent / "grpo_server.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def request_differences(line: dict, tokens: Tokens, requests: Requests, processor: Any) -> set[str]:
    images = [image_name(np.asarray(picture)) for picture in pictures(line)]
    return differences(tokens, requests, len(line["trajectory"].turns), images, processor.image_token_id)


def test_sequences_are_what_the_engine_was_given_and_returned(
    lines: list[dict], requests: list[Request], policies: list[Path]
) -> None:
    processor, logged = load(policies[0])[1], by_prompt(requests)
    for line in lines:
        (tokens,) = line["sequences"]
        assert request_differences(line, tokens, logged, processor) == set(), (line["step"], line["uid"])


@pytest.mark.parametrize(("fault", "noticed"), NOTICED.items())
def test_faults_between_loop_and_engine_are_noticed(
    lines: list[dict], requests: list[Request], policies: list[Path], fault: Any, noticed: str
) -> None:
    processor = load(policies[0])[1]
    for line in with_observation(of_step(lines, 1))[::4]:
        tokens = deepcopy(line["sequences"][0])
        ids = tokens["prompts"] + tokens["responses"]
        own = deepcopy([each for each in requests if each["prompt_ids"] == ids[: len(each["prompt_ids"])]])
        fault(tokens, own, processor)
        assert noticed in request_differences(line, tokens, by_prompt(own), processor)


def test_rewards_equal_a_recomputation_from_the_record(lines: list[dict]) -> None:
    for line in lines:
        name = line["trajectory"].method
        method = get_method(name, **GRADING.get(name, {}))
        row = {"extra_info": line["extra_info"], "reward_model": {"ground_truth": line["ground_truth"]}}
        reward = asyncio.run(method.score(line["trajectory"], Sample.from_row(row)))
        assert {key: line["reward"][key] for key in reward} == reward


def test_advantages_are_those_of_the_group(lines: list[dict]) -> None:
    assert_advantages_of_groups(lines)


def test_a_lost_rollout_that_counts_is_noticed(lines: list[dict]) -> None:
    """As if the first rollout of each group were lost, and its siblings were compared with it all the same."""
    with pytest.raises(AssertionError):
        assert_advantages_of_groups([line for line in lines if line["session_id"] != 0])


def test_training_metrics_reach_the_logger(grpo_run: Run) -> None:
    scores = [f"video_tools/{method}/score/mean" for method in METHODS]
    for name in (*scores, "stop/answer", "frames/total/mean", "tokens/observation/mean"):
        assert f"{name}:" in grpo_run.log, name
    assert "invariant/violations:0" in grpo_run.log


def test_records_and_metrics_have_the_recorded_keys(grpo_run: Run) -> None:
    recorded = json.loads((DATA / "run_keys.json").read_text(encoding="utf-8"))
    files = sorted((grpo_run.folder / "trajectories").glob("step_*.jsonl"))
    written = [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    expected = {**recorded["records"], **WITH_TOKENS, **ADDED_RECORD_KEYS}
    assert record_differences(expected, record_keys(written)) == []
    names = metric_names(logged_names(grpo_run.log))
    assert metric_differences([*recorded["metrics"], *ADDED_METRICS], names, COMPONENTS) == []
