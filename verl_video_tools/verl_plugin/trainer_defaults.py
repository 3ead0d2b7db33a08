"""What our trainers do with a run's options before verl reads them."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.config import config_path

_AGENT_LOOP_MANAGER = "verl_video_tools.verl_plugin.agent_loop_worker.VideoAgentLoopManager"


def set_defaults(config: DictConfig) -> None:
    """Select our agent loop workers and our router, unless others are chosen.

    verl's own router is what `video_tools.trainer.group_routing=false` gives, and deterministic runs have it, too.
    `trainer.val_only` measures, as it says: with `val_before_train=False`, which recipes set, verl would train.

    Args:
        config: of a run; changed in place.
    """
    if config.trainer.get("val_only"):
        config.trainer.val_before_train = True
    rollout = config.actor_rollout_ref.rollout
    if not rollout.agent.get("agent_loop_manager_class"):
        OmegaConf.update(rollout.agent, "agent_loop_manager_class", _AGENT_LOOP_MANAGER, force_add=True)
    wants_router = OmegaConf.select(config, "trainer.video_tools.group_routing", default=True)
    if wants_router and not rollout.get("router_config_path") and not rollout.get("full_determinism"):
        OmegaConf.update(rollout, "router_config_path", str(config_path("group-router")), force_add=True)
