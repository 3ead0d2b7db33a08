"""Whether the inference servers of a run have our front end before vLLM (`vllm_front_end`).

`VVT_VLLM_FRONT_END=stock` leaves verl's server as it is. Recipes hand the variable on to all workers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def front_end_is_active() -> bool:
    return os.environ.get("VVT_VLLM_FRONT_END", "") != "stock"


def takes_image_references(rollout: Mapping[str, Any]) -> bool:
    """Whether the inference servers of a run take `SentImages`.

    Args:
        rollout: `actor_rollout_ref.rollout`. With separate servers for prefill and decoding verl starts its own.
    """
    is_disaggregated = bool((rollout.get("disaggregation") or {}).get("enabled", False))
    return rollout.get("name") == "vllm" and not is_disaggregated and front_end_is_active()
