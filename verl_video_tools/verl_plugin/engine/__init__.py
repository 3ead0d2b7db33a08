"""verl's training engine with what its options do not reach: a vision tower that stays as it is."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from verl_video_tools.core.errors import UsageError

FROZEN_TOWER_CONFIG = "verl_video_tools.verl_plugin.engine.frozen_tower.FrozenTowerConfig"
"""Name of the engine's configuration that selects the frozen vision tower. Importing it is left to verl."""


def honour_freeze_vision_tower(config: Any) -> None:
    """Let verl's own option `actor_rollout_ref.actor.freeze_vision_tower` select the engine that freezes it.

    verl builds an engine from the options of model, engine, optimiser and checkpoint. This one stands among the
    actor's, so that no engine ever sees it.

    Args:
        config: of a run of verl's trainer for reinforcement learning; changed in place.

    Raises:
        UsageError: the actor's strategy has no such engine.
    """
    actor = config.actor_rollout_ref.actor
    if not actor.get("freeze_vision_tower"):
        return
    if actor.strategy != "fsdp2":
        raise UsageError(
            f"actor_rollout_ref.actor.freeze_vision_tower=True with strategy={actor.strategy}: the vision tower would "
            "train all the same; set actor_rollout_ref.actor.strategy=fsdp2, or freeze_vision_tower=False"
        )
    OmegaConf.update(actor.fsdp_config, "_target_", FROZEN_TOWER_CONFIG, force_add=True)
