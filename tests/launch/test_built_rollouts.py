"""FrameMind's plan against rollouts that its loop really builds, at the recipe's full budget: a group, a rung each."""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="its token builder counts")
from tests.verl_plugin.harness import Rollout, make_row, model_dir, run_loop, video
from verl_video_tools.launch.plan import QUESTION, find_model, plan_workload, queue_image_bytes, recipe_options
from verl_video_tools.methods import get_method
from verl_video_tools.verl_plugin.model_tokens import load_model_tokens
from verl_video_tools.video import Video

SECONDS = 60
CLIP = f"<think>a</think><tool_call>VideoClip(0, {SECONDS})</tool_call><turn_sum>b</turn_sum>"
ANSWER = "<think>a</think><answer>B</answer>"
SAMPLING = {"temperature": 0.7, "top_p": 0.9, "top_k": -1}


@pytest.mark.slow
async def test_a_group_of_framemind_holds_what_is_planned() -> None:
    method = get_method("framemind")
    options = recipe_options(method)
    limits = {"min_pixels": options.min_pixels, "max_pixels": options.max_pixels}
    path = video(num_frames=10 * SECONDS, fps=10)
    tokens, shape = load_model_tokens(model_dir(), limits), find_model(model_dir())
    work = plan_workload(method, Video(path).info, tokens, options)
    assert (work.max_calls, work.call_frames) == (2, 20)

    async def built(number: int) -> Rollout:
        return await run_loop(
            [CLIP] * work.max_calls + [ANSWER],
            row={**make_row(path, QUESTION), "session_id": number},
            method="framemind",
            prompt_length=options.prompt_length,
            response_length=options.response_length,
            max_images=method.recipe_budget.images,
            mm_processor_kwargs=limits,
            rollout_options={"n": options.rollouts, **SAMPLING, "val_kwargs": {"n": 1, "temperature": 0.01}},
            sampling_params=SAMPLING,
        )

    group = [await built(number) for number in range(options.rollouts)]
    initial = [rollout.trajectory.initial_frames for rollout in group]
    called = [frame for rollout in group for call in rollout.trajectory.calls() for frame in call.frames]
    assert len(called) == options.rollouts * work.max_calls * work.call_frames
    assert max(len(rollout.output.prompt_ids) for rollout in group) == pytest.approx(work.initial_tokens, rel=0.01)
    shown = [*(frame for frames in initial for frame in frames), *called]
    pixel_bytes = sum(3 * frame.width * frame.height for frame in shown)
    assert queue_image_bytes(work, shape) / work.groups == pixel_bytes


def test_a_mixture_that_transformers_saved_is_one() -> None:
    """It gives the number of experts another name than released models do."""
    for family, shared in (("qwen3_vl_moe", 0), ("qwen3_5_moe", 96)):
        shape = find_model(model_dir(family))  # type: ignore[arg-type]  # a text of the tuple above
        assert (shape.experts, shape.expert_intermediate, shape.intermediate) == (4, 96, shared)
    assert find_model(model_dir("qwen3_5")).linear_layers == 4
