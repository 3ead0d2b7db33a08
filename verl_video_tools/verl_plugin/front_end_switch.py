"""Whether the inference servers of a run have our front end before vLLM (`vllm_front_end`).

`VVT_VLLM_FRONT_END=stock` leaves verl's server as it is. Recipes hand the variable on to all workers.
"""

from __future__ import annotations

import os


def front_end_is_active() -> bool:
    return os.environ.get("VVT_VLLM_FRONT_END", "") != "stock"


def takes_image_references(rollout_name: str | None) -> bool:
    """Whether the inference servers of a run take `SentImages`.

    Args:
        rollout_name: `actor_rollout_ref.rollout.name`.
    """
    return rollout_name == "vllm" and front_end_is_active()
