"""FrameMind's recipe: every rung of its ladder within the budgets."""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.method_costs import LABEL_TOKENS
from tests.recipes.options import (
    SETTINGS,
    TEXT_TOKENS,
    VIDEOS,
    Composed,
)
from verl_video_tools.core.types import PixelEnvelope, Sample
from verl_video_tools.methods import get_method
from verl_video_tools.verl_plugin.settings import group_methods, method_from_config
from verl_video_tools.video import fit_envelope, image_tokens
from verl_video_tools.video.sampling import linspace_indices


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "factor"), [("cpu", 28), ("gpu", 28), ("gpu", 32)])
def test_the_dearest_rung_of_framemind_fits(setting: str, factor: int, composed: Composed) -> None:
    config = composed("framemind_grpo", setting)
    rollout, kwargs = config.actor_rollout_ref.rollout, config.data.mm_processor_kwargs
    method = method_from_config("framemind", rollout)
    assert method.low != method.high
    group = group_methods(method, rollout, validate=False)
    assert [member.rung for member in group] == list(range(1, 9))
    envelope = PixelEnvelope(factor, kwargs.get("min_pixels", 28 * 28), kwargs.get("max_pixels", 1 << 20))
    sample = Sample(question="?", ground_truth="A", video_path="v.mp4", question_type="mc")

    def fits(frames: int, width: int, height: int, budget: int) -> bool:
        tokens = image_tokens(width, height, factor) + LABEL_TOKENS["framemind"]
        return frames * tokens + TEXT_TOKENS[setting] <= budget

    for member in group:
        look = member.plan_initial_frames(VIDEOS[setting][-1], sample, envelope)
        assert fits(len(look), look.width, look.height, config.data.max_prompt_length)
    width, height = fit_envelope(method.tool_side_pixels, method.tool_side_pixels, envelope)
    assert fits(2 * method.call_frames, width, height, config.data.max_response_length)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("recipe", ["framemind_grpo", "mixed_grpo"])
def test_every_rung_of_framemind_spreads_its_frames_evenly(recipe: str, setting: str, composed: Composed) -> None:
    """The paper's uniform ladder (4.1), as in evaluation; nested times are left to those who ask for them."""
    rollout = composed(recipe, setting).actor_rollout_ref.rollout
    method = method_from_config("framemind", rollout)
    assert method.nested_times is get_method("framemind").nested_times is False
    info = VIDEOS["gpu"][0]
    sample = Sample(question="?", ground_truth="A", video_path="v.mp4", question_type="mc")
    for member in group_methods(method, rollout, validate=False):
        indices = member.plan_initial_frames(info, sample, PixelEnvelope(28, 784, 1 << 20)).indices
        assert indices == linspace_indices(0, info.num_frames - 1, member.initial_rung()[0])
