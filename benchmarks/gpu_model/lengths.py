"""Lengths of the longest rollouts of LongVT and VideoZoomer, by `vvt estimate`, for one GPU of a real run."""

from __future__ import annotations

from dataclasses import dataclass

from verl_video_tools.launch.plan import HOUR, ModelShape, plan_workload, recipe_options
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.cost import estimated_tokens

METHODS = ("longvt", "videozoomer")


@dataclass(frozen=True)
class Lengths:
    """Of the longest rollout of a method.

    Attributes:
        tokens: of the sequence, on one of the GPUs that share it.
        images, image_tokens: of the whole sequence: each of these GPUs runs the vision tower on all of them.
        grid: height and width of an image, in patches; multiples of `merge`.
    """

    method: str
    tokens: int
    images: int
    image_tokens: int
    grid: tuple[int, int]


def lengths_of(method: str, model: ModelShape, shorten: int = 1) -> Lengths:
    """Of a method on an hour of 1920x1080.

    Args:
        shorten: divides tokens and images, for machines on which the real ones take too long.
    """
    chosen = get_method(method)
    options = recipe_options(chosen)
    work = plan_workload(chosen, HOUR, estimated_tokens(options.envelope(model.factor)), options)
    images = max(2, (work.initial_frames + work.max_calls * work.call_frames) // shorten)
    tokens_per_image = work.initial_image_tokens // work.initial_frames
    tokens = max(64, options.longest_tokens // options.ulysses // shorten)
    return Lengths(method, tokens, images, images * tokens_per_image, grid_of(tokens_per_image, model.merge))


def grid_of(tokens: int, merge: int) -> tuple[int, int]:
    """Height and width in patches, as nearly square as whole tokens allow."""
    height = max(side for side in range(1, int(tokens**0.5) + 1) if tokens % side == 0)
    return merge * height, merge * tokens // height
