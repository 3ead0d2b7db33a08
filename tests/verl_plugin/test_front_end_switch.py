"""Images go to inference servers by reference where these are ours, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from verl_video_tools.verl_plugin.images import takes_image_references


@pytest.mark.parametrize(
    ("rollout", "front_end", "takes"),
    [
        ({"name": "vllm"}, "", True),
        ({"name": "vllm", "disaggregation": {"enabled": False}}, "", True),
        ({"name": "vllm", "disaggregation": {"enabled": True}}, "", False),
        ({"name": "vllm"}, "stock", False),
        ({"name": "sglang"}, "", False),
    ],
)
def test_only_our_servers_take_references(
    rollout: dict[str, Any], front_end: str, takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `disaggregation.enabled` verl starts its own server class, which knows no `SentImages`."""
    monkeypatch.setenv("VVT_VLLM_FRONT_END", front_end)
    assert takes_image_references(rollout) is takes
