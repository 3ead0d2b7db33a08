"""What agent loop, reward manager and trainer agree on: where configs stand and where the record travels.

The groups copy the node `video_tools` to `actor_rollout_ref.rollout.custom.video_tools`, since engine and actor get
`actor_rollout_ref` alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.config import config_path
from verl_video_tools.core.config import checked_fields, did_you_mean
from verl_video_tools.core.errors import RowError, SetupError, UsageError
from verl_video_tools.core.trajectory import JUDGE_FLAG, REWARD_FLAG
from verl_video_tools.core.types import Method, Sample, Trajectory
from verl_video_tools.methods import get_method, method_names
from verl_video_tools.methods.run_settings import write_run_settings
from verl_video_tools.services.config import JudgeConfig, RetrievalConfig, ToolModelConfig
from verl_video_tools.verl_plugin.alarms import Alarms

_RECORD_FIELD = "video_tools_trajectory"

TURN_CREDIT = "turn_credit"
"""What the trainer needs to credit the turns of a sequence: `number` of its first turn in the rollout, their `spans` in
its response, and the method's `discount`. Only sequences of methods with `turn_components` have it."""
TOKEN_COUNTS = ("num_generated_tokens", "num_observation_tokens")
"""Entries of a sequence's `extra_fields`: tokens of its response by origin. The mask says the same only until verl or
the trainer takes tokens out of the loss."""


NO_VERSION = -1
"""Entry `max_global_steps` of a rollout that never reached the inference engine: it belongs to no policy version."""

CACHED_TOKENS = "num_cached_tokens"
"""Entry of the last sequence's `extra_fields`: of the first turn's prompt, those that the engine had in its cache."""

SAMPLED_TOKENS = "num_sampled_tokens"
"""Entry of the last sequence's `extra_fields`: tokens that the engine generated for the rollout, including those of a
sequence that is not trained on."""


def method_from_config(name: str, rollout_config: DictConfig) -> Method:
    """The frozen config of a method with the fields that `video_tools.<name>` overrides."""
    return get_method(name, **plain_dict(OmegaConf.select(rollout_config, f"custom.video_tools.{name}")))


def configured_methods(rollout_config: DictConfig) -> list[Method]:
    """The methods that have a section of their own in `video_tools`, as the run configures them."""
    sections = plain_dict(OmegaConf.select(rollout_config, "custom.video_tools"))
    return [method_from_config(name, rollout_config) for name in method_names() if name in sections]


def _methods_of(sections: Mapping[str, Any]) -> list[Method]:
    return [get_method(name, **(sections[name] or {})) for name in method_names() if name in sections]


def max_images(rollout_config: DictConfig) -> int | None:
    """Images that a rollout may show: `video_tools.max_images`, which also limits the engine. None: any number.

    A configuration without our groups has verl's own `limit_images` instead.
    """
    limit = OmegaConf.select(rollout_config, "custom.video_tools.max_images")
    limit = rollout_config.get("limit_images") if limit is None else limit
    return None if limit is None else int(limit)


_SAMPLING = ("temperature", "top_p", "top_k")


def is_validation(sampling_params: Mapping[str, Any], rollout_config: DictConfig) -> bool:
    """Whether a rollout is one of validation.

    verl 0.9.1 does not tell its loops; our workers do (`RolloutGroup.validates`). For others: verl samples validation
    by `rollout.val_kwargs`, and a rollout that samples by these, and not by the options of training, is one. Where both
    are the same, every rollout counts as training.
    """
    validation = OmegaConf.select(rollout_config, "val_kwargs")
    if validation is None:
        return False
    used, trained, validated = (
        [options.get(name) for name in _SAMPLING] for options in (sampling_params, rollout_config, validation)
    )
    return used == validated != trained


def group_methods(method: Method, rollout_config: DictConfig, validate: bool) -> list[Method]:
    """The config of each rollout of a group, by its number."""
    options = rollout_config.val_kwargs if validate else rollout_config
    group_size = int(options.get("n", 1))
    return [method.for_session(number, group_size, validate) for number in range(group_size)]


def judge_config(config: DictConfig, router_address: str | None = None) -> JudgeConfig | None:
    """The judge of a run, from `video_tools.judge`; None if it has none.

    Without a `base_url` the judge is verl's reward-model server, where `reward.reward_model.enable` starts one.

    Args:
        config: verl's whole configuration.
        router_address: host and port of that server, which only reward workers know.

    Raises:
        UsageError: an unknown field or a wrong value, or verl's server in a form that cannot judge.
    """
    fields = plain_dict(OmegaConf.select(config, "actor_rollout_ref.rollout.custom.video_tools.judge"))
    judge = JudgeConfig(**checked_fields(JudgeConfig, fields))
    if judge.base_url is not None:
        return judge
    if not OmegaConf.select(config, "reward.reward_model.enable", default=False):
        return None
    if not config.reward.reward_model.enable_resource_pool:
        raise UsageError(
            "verl's reward model can judge only with reward.reward_model.enable_resource_pool=True: a model "
            "that shares the actor's devices runs after sampling, and gets neither question nor truth"
        )
    if OmegaConf.select(config, "reward.reward_model.rollout.free_cache_engine", default=True):
        raise UsageError(
            "verl puts its reward model to sleep after the start, and wakes it only if it shares the actor's devices. "
            "A judge would never answer; set reward.reward_model.rollout.free_cache_engine=False"
        )
    if not config.reward.custom_reward_function.path:
        raise UsageError(
            "without a custom_reward_function verl uses its reward model as a classifier and never calls our reward "
            "manager; set reward.custom_reward_function.path=pkg://verl_video_tools.verl_plugin.reward_manager "
            "reward.custom_reward_function.name=scored_by_manager"
        )
    return judge if router_address is None else replace(judge, base_url=f"http://{router_address}/v1")


SERVICES = ("judge", "retrieval", "tool_model", "trainer")
OTHER_SETTINGS = ("cores_per_node", "max_images", "loader_shm_gb", "stored_images", "demo_dir", "demo", "rft")


def check_sections(node: Mapping[str, Any]) -> None:
    """Raises UsageError for a name below `video_tools` that nothing reads; names the nearest one."""
    sections = (*method_names(), *SERVICES, *OTHER_SETTINGS)
    for name in node:
        if name not in sections:
            nearest = did_you_mean(name, sections)
            raise UsageError(f"video_tools has no section {name!r}; it has {', '.join(sections)}{nearest}")


def describe_run(config: DictConfig, section: DictConfig) -> None:
    """Write `video_tools.yaml` into the run's folder (`methods.run_settings`).

    Args:
        config: verl's whole configuration, of reinforcement learning or fine-tuning.
        section: its part with the methods' fields, below `custom.video_tools` or, in fine-tuning, `video_tools`.
    """
    node = plain_dict(OmegaConf.select(section, "custom.video_tools") or section.get("video_tools"))
    check_sections(node)
    judge = {name: value for name, value in (node.get("judge") or {}).items() if value is not None}
    model = (config.get("actor_rollout_ref") or config).model.path
    files = config.data.train_files
    write_run_settings(
        Path(config.trainer.default_local_dir),
        _methods_of(node),
        plain_dict(config.data.get("mm_processor_kwargs")),
        judge if judge.get("base_url") else None,
        str(Path(model).absolute()) if Path(model).is_dir() else model,
        [files] if isinstance(files, str) else list(files),
    )


def retrieval_config(rollout_config: DictConfig) -> RetrievalConfig | None:
    """The retrieval service of a run, from `video_tools.retrieval`; None without a `model` there.

    Raises:
        UsageError: an unknown field or a wrong value.
    """
    fields = plain_dict(OmegaConf.select(rollout_config, "custom.video_tools.retrieval"))
    return None if fields.get("model") is None else RetrievalConfig.from_fields(fields)


def tool_model_config(rollout_config: DictConfig) -> ToolModelConfig | None:
    """The model that tools ask, from `video_tools.tool_model`; None without a `base_url` there.

    Its `concurrency` and rate are this worker's share.

    Raises:
        UsageError: an unknown field or a wrong value.
    """
    fields = plain_dict(OmegaConf.select(rollout_config, "custom.video_tools.tool_model"))
    if fields.get("base_url") is None:
        return None
    config = ToolModelConfig.from_fields(fields)
    num_workers = int(OmegaConf.select(rollout_config, "agent.num_workers") or 1)
    return config.share(num_workers)


def check_media(method: Method, sample: Sample) -> None:
    """Require a video, or images that the method asks about. verl 0.9.1 fails on a micro-batch without an image, and a
    group shares its row.

    Raises:
        RowError: the row is a text alone.
        UsageError: it has images or several videos, and the method does not ask about these.
    """
    if not sample.media:
        raise RowError(
            f"row index={sample.extra_info.get('index', '?')} is a text alone (visuals='none'). `vvt eval` and "
            "`vvt replay` accept such rows, but verl 0.9.1 cannot train on them; leave them out"
        )
    if not sample.video_path:
        method.picture_prompt(sample.question, ())
    if sample.more_video_paths and not method.asks_about_several_videos:
        raise UsageError(f"{method.name} does not ask about several videos, and the row has {len(sample.videos)}")


def plain_dict(config: DictConfig | None) -> dict[str, Any]:
    """A section of a Hydra config as a dict with string keys; empty where the section is absent.

    Raises:
        UsageError: the section is not a mapping.
    """
    values = {} if config is None else OmegaConf.to_container(config, resolve=True)
    if not isinstance(values, dict):
        raise UsageError(f"expected field=value pairs in the configuration, got {values!r}")
    return {str(key): value for key, value in values.items()}


def pack_record(trajectory: Trajectory) -> dict[str, str]:
    """The record as an entry of `AgentLoopOutput.extra_fields` (JSON text: survives every serialiser on the way)."""
    return {_RECORD_FIELD: json.dumps(trajectory.to_dict())}


TURN_REWARDS = "turn_rewards"
"""`Turn.rewards` of each turn of a rollout, beside its record, whose rollout was scored in another process."""


def unpack_record(extra_fields: Mapping[str, Any]) -> Trajectory:
    """Inverse of `pack_record`; once the rollout is scored, with what its turns have earned, and with the flag of a
    judge or a reward that failed on it.

    Raises:
        SetupError: the rollout was made by an agent loop that is not ours.
    """
    if _RECORD_FIELD not in extra_fields:
        raise SetupError(
            "a rollout carries no record: reward manager and trainer of verl_video_tools take only rollouts of its own "
            "agent loops; point rollout.agent.agent_loop_config_path at the file that `vvt path agent-loops` prints"
        )
    trajectory = Trajectory.from_dict(json.loads(extra_fields[_RECORD_FIELD]))
    for turn, rewards in zip(trajectory.turns, extra_fields.get(TURN_REWARDS) or (), strict=False):
        turn.rewards = rewards
    reward_info = extra_fields.get("reward_extra_info") or {}
    if reward_info.get("judge_failed"):
        trajectory.flags.append(JUDGE_FLAG)
        trajectory.error = "the judge gave no verdict; the reward worker's log says why"
    elif reward_info.get("flagged") and not trajectory.flags:
        trajectory.flags.append(REWARD_FLAG)
        trajectory.error = "its reward could not be computed; the reward worker's log says why"
    return trajectory


# ---------------------------------------------------------------------------------------------- options of our trainers


SECTION = "video_tools.trainer"


@dataclass(frozen=True)
class TrainerOptions:
    """Described in docs/training.md.

    Attributes:
        record_tokens: whether records have the sequences.
        tracked_rollouts_every: steps from one picture of rollouts in a tracker to the next; 0: none.
        watchdog_grace_seconds: for how long an engine may be dead, or an actor out of reach.
        poll_interval_seconds: of verl's replay buffer, between polls for finished rollouts; None: verl's
            own.
        max_refill_batches: batches of questions that a step with dynamic sampling may request beyond its first.
        max_probs_diff: limit of the alarm `engine_gap`, between the engine's probabilities of sampled tokens and the
            actor's.
        alarms: see the module `alarms`.
        group_routing: a group's rollouts share a server, see `group_router`.
        interim_validation_rows: validation between the first step and the last measures only so many rows, the first of
            its files; 0: all.
    """

    record_tokens: bool = False
    tracked_rollouts_every: int = 10
    watchdog_grace_seconds: float = 60.0
    poll_interval_seconds: float | None = None
    max_refill_batches: int = 20
    max_probs_diff: float = 0.05
    alarms: dict = field(default_factory=dict)
    group_routing: bool = True
    interim_validation_rows: int = 0

    def __post_init__(self) -> None:
        for name in ("tracked_rollouts_every", "interim_validation_rows"):
            if (value := getattr(self, name)) < 0:
                raise UsageError(f"{SECTION}.{name}={value}: give 0 or more")
        self.make_alarms()

    def make_alarms(self) -> Alarms:
        """The alarms of a run with these options. Raises UsageError for options that they do not have."""
        return Alarms(self.alarms, self.max_probs_diff)


def trainer_options(config: DictConfig) -> TrainerOptions:
    """Those of a run.

    Args:
        config: verl's whole configuration.

    Raises:
        UsageError: there is no option of a name (names the nearest one), or a value makes no sense.
    """
    options = plain_dict(config.trainer.get("video_tools"))
    return TrainerOptions(**checked_fields(TrainerOptions, options, SECTION))


FROZEN_TOWER_CONFIG = "verl_video_tools.verl_plugin.fsdp_engine.FrozenTowerConfig"
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


# --------------------------------------------------------------------------------------------------------------- epochs


def end_with_epochs(trainer: DictConfig, steps_per_epoch: int, *, is_reported: bool = True) -> int | None:
    """Lower `total_training_steps` to the steps that the epochs have, where it is more.

    Args:
        trainer: the section of a run's configuration; changed in place.
        is_reported: print a line about it.

    Returns:
        The new number; None where nothing had to change.
    """
    requested, last = trainer.total_training_steps, steps_per_epoch * trainer.total_epochs
    if requested is None or requested <= last:
        return None
    trainer.total_training_steps = last
    if is_reported:
        print(
            f"[verl_video_tools] {trainer.total_epochs} epochs of {steps_per_epoch} steps end before "
            f"total_training_steps={requested}: step {last} is the last; a larger trainer.total_epochs allows more",
            flush=True,
        )
    return last
