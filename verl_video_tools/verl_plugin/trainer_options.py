"""Options of our trainers that verl does not have (`video_tools.trainer`), and values set before verl reads a run's."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.config import config_path
from verl_video_tools.core.config import checked_fields
from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.alarms import Alarms
from verl_video_tools.verl_plugin.settings import plain_dict
from verl_video_tools.verl_plugin.tracked_rollouts import EVERY_STEPS

SECTION = "video_tools.trainer"


@dataclass(frozen=True)
class TrainerOptions:
    """Described in docs/training.md.

    Attributes:
        record_tokens: whether records have the sequences.
        tracked_rollouts_every: steps from one picture of rollouts in a tracker to the next; 0: none.
        watchdog_grace_seconds: for how long an engine may be dead, or an actor out of reach.
        poll_interval_seconds: of verl's replay buffer, which asks so often whether rollouts have finished; None: verl's
            own.
        max_refill_batches: batches of questions that a step with dynamic sampling may ask beyond its first.
        max_probs_diff: limit of the alarm `engine_gap`, between the engine's probabilities of sampled tokens and the
            actor's.
        alarms: see the module `alarms`.
        group_routing: a group's rollouts share a server, see `group_router`.
        interim_validation_rows: validation between the first step and the last measures only so many rows, the first of
            its files; 0: all.
    """

    record_tokens: bool = False
    tracked_rollouts_every: int = EVERY_STEPS
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
    given = plain_dict(config.trainer.get("video_tools"))
    return TrainerOptions(**checked_fields(TrainerOptions, given, SECTION))


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
