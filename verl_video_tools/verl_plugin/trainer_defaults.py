"""What our trainers do with a run's options before verl reads them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.config import config_path
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.pages import page
from verl_video_tools.methods import method_names
from verl_video_tools.verl_plugin.settings import plain_dict
from verl_video_tools.video import envelope_of

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


def check_validation_rows(config: DictConfig) -> None:
    """verl makes a data set of `data.val_files` in every run, so recipes give it the training rows if there are none.

    Raises:
        UsageError: the run would measure itself on these.
    """
    trainer = config.trainer
    if not (trainer.test_freq > 0 or trainer.get("val_before_train") or trainer.get("val_only")):
        return
    if config.data.val_files == config.data.train_files:
        raise UsageError(
            f"this run validates (trainer.test_freq={trainer.test_freq}, val_before_train={trainer.val_before_train}) "
            f"on the rows that it trains on, {config.data.train_files}; set VAL_FILES, or data.val_files"
        )


def check_switching(config: DictConfig) -> None:
    """verl waits for groups and refills between two steps where it lends devices: without our bound, and unseen by the
    watch on the judge.

    Raises:
        UsageError: the run does that with dynamic sampling.
    """
    switches = OmegaConf.select(config, "trainer.v1.separate_async.hybrid_rollout.enable_switch")
    if switches and OmegaConf.select(config, "algorithm.filter_groups.enable"):
        raise UsageError(
            "trainer.v1.separate_async.hybrid_rollout.enable_switch=True and algorithm.filter_groups.enable=True: a "
            "step that dynamic sampling cannot fill would never end; switch one off"
        )


def check_reward_function(config: DictConfig) -> None:
    """Our reward manager scores by a row's method and asks no function; verl would take one without a word.

    Raises:
        UsageError: one is configured. `scored_by_manager` is none, and verl's reward model needs it.
    """
    name = OmegaConf.select(config, "reward.custom_reward_function.name")
    is_given = OmegaConf.select(config, "reward.custom_reward_function.path") is not None
    manager = OmegaConf.select(config, "reward.reward_manager.name")
    if is_given and name != "scored_by_manager" and manager == "VideoToolsRewardManager":
        raise UsageError(
            f"reward.custom_reward_function.name={name} would never be called: {manager} scores a rollout by its "
            f"method; leave the function out, and override the method's `components` ({page('rewards')})"
        )


def check_pixel_bounds(names: Collection[str], config: DictConfig, processor: Any) -> None:
    """A loop would say so, too: in every rollout.

    Args:
        names: of the loops that rows ask for. Others than ours may have other processors.
        processor: the model's, if it has one.

    Raises:
        UsageError: no image fits into the bounds of `data.mm_processor_kwargs`.
    """
    if processor is not None and not set(method_names()).isdisjoint(names):
        envelope_of(processor, plain_dict(OmegaConf.select(config, "data.mm_processor_kwargs")))
