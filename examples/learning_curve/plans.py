"""What `run.py` does for each method: length of its stages, the time they take, and what its paper advises against."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from verl_video_tools.launch.train import Stage
from verl_video_tools.synthetic.needle import NEEDLE_KINDS
from verl_video_tools.synthetic.questions import Kind
from verl_video_tools.synthetic.spatial import SPATIAL_KINDS


@dataclass(frozen=True)
class RolloutTuning:
    """How LongVT's policy is fine-tuned on its own good rollouts (RFT, `vvt train rft`).

    The group's values for a tiny model are the cold start's: they teach a base model its grammar, at 15 times the
    learning rate of RL, and undo RL. Nor are rollouts of the first half of RL worth imitating: their policy was weaker.

    Attributes:
        cold_share: part of the rows that is the cold start's. The group's 0.94 takes more rows than the good ones of
            the expert that skips tool calls are; half of these answer from the initial frames, as no rollout does.
        last_share: of the steps of RL, the last part, whose rollouts count.
    """

    cold_share: float = 0.5
    last_share: float = 0.5
    batch_size: int = 16
    learning_rate: float = 3e-4
    epochs: int = 1


@dataclass(frozen=True)
class Plan:
    """How long each stage is.

    Attributes:
        imperfection: part of the cold start's questions that the expert answers without a proper look.
        skip_rate: of these, the part that it answers without any. Looks at a random place, written like proper ones,
            teach a model to make up numbers where it is to copy them.
        num_direct_rows: rows of the cold start that are answered without tools; 0 where none are to be asked so.
        world: whose videos and questions, as `vvt demo` takes it.
        composition: of the method `compose`; None for the other methods.
        kinds: of questions that are trained on and measured.
        compares_without_tools: measure the same questions without tools as well, before and after RL.
        interim_questions: held-out ones that need another look, of a video each, which are also asked at every quarter
            of RL; 0 where none are to be asked then.
        batch_size: questions of a step.
        mini_batch_size: of these, how many an update takes. Two updates per step teach what two steps do, and rollouts
            are what a step costs.
        epochs: passes over the cold start. After one, half of VideoZoomer's calls are refused, and calling hardly
            pays.
        freeze_vision_tower: the base model tells all things apart; training its vision tower at the rates that teach a
            tiny model to call tools made it confuse shapes. None: as the method's config groups have it.
        rft: fine-tuning on the policy's good rollouts after RL; None: none.
    """

    num_train_videos: int = 250
    num_validation_videos: int = 136
    questions_per_video: int = 14
    imperfection: float = 0.65
    skip_rate: float = 1.0
    num_direct_rows: int = 300
    world: Literal["needle", "spatial"] = "needle"
    composition: str | None = None
    kinds: tuple[Kind, ...] = NEEDLE_KINDS
    compares_without_tools: bool = True
    interim_questions: int = 136
    epochs: int = 2
    rl_steps: int = 20
    batch_size: int = 8
    mini_batch_size: int = 4
    learning_rate: float = 2e-4
    freeze_vision_tower: bool | None = True
    rft: RolloutTuning | None = None

    def options(self, stage: Stage) -> list[str]:
        """Of all its runs; what it leaves open is the choice of their config groups."""
        if self.freeze_vision_tower is None:
            return []
        if stage == "grpo":
            return [f"actor_rollout_ref.actor.freeze_vision_tower={self.freeze_vision_tower}"]
        return [f"engine._target_={FROZEN if self.freeze_vision_tower else TRAINED}"]

    def written(self) -> dict[str, Any]:
        """As a JSON file has it."""
        fields: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return fields


FROZEN = "verl_video_tools.verl_plugin.fsdp_engine.FrozenTowerConfig"
TRAINED = "verl.workers.config.FSDPEngineConfig"
"""Engines of fine-tuning, by what they do with the vision tower."""
NO_TOOLS = "direct"
"""The method without tools."""
PLAN_BEFORE: dict[str, Any] = {
    "world": "needle",
    "composition": None,
    "interim_questions": 0,
    "mini_batch_size": 8,
    "freeze_vision_tower": None,
    "rft": None,
}
"""Fields that plans did not have at first, and what they were then."""
MINUTES = {"data": 1, "cold": 1, "sft": 12, "rl": 4, "rft": 14, "ablation": 3}
"""What a stage takes on two idle cores; `rl` and `ablation` without their steps."""
SECONDS_PER_STEP = {
    "framethinker": 30,
    "longvt": 28,
    "videozoomer": 65,
    "videobrain": 21,
    "framemind": 38,
    "direct": 13,
    "compose_temporal": 28,
    "compose_spatial": 33,
}


@dataclass(frozen=True)
class Ablation:
    """A choice that a paper compares with its own.

    Attributes:
        title: what differs.
        fields: of the method's config, as FIELD=VALUE.
    """

    title: str
    fields: tuple[str, ...]


# Steps are what 22 minutes leave: VideoZoomer's and FrameMind's take the longest. A card takes two calls, which pay
# only together. Its rows are short, and it learns from more of them, since it has to learn where a card is as well.
# Without tools a rollout costs a quarter of the generated tokens, and at most half of the visual ones: 50 such steps
# cost about what the other methods' do.
PLANS = {
    "compose_spatial": Plan(
        world="spatial",
        composition="spatial",
        kinds=SPATIAL_KINDS,
        questions_per_video=24,
        epochs=1,
        num_direct_rows=0,
        compares_without_tools=False,
        rl_steps=30,
    ),
    "direct": Plan(num_direct_rows=0, compares_without_tools=False, rl_steps=50),
    "compose_temporal": Plan(composition="demo", num_direct_rows=0, compares_without_tools=False),
    "longvt": Plan(rft=RolloutTuning()),
    "framethinker": Plan(),
    "videozoomer": Plan(rl_steps=16),
    "framemind": Plan(rl_steps=16),
}

ABLATIONS = {
    "framethinker": Ablation(
        "0.2 for a frame number, right or wrong",  # appendix D.1
        (
            "bonus_condition=always",
            "choose_bonus=0",
            "time_bonus=0.2",
            "time_bonus_for=any_question",
            "ccv=false",
        ),
    ),
    "videozoomer": Ablation("bonus for a zoom, right or wrong", ("bonus_condition=always",)),
    "longvt": Ablation("recall instead of IoU", ("time_reward=recall",)),
    "videobrain": Ablation(
        "no reward for behaviour", tuple(f"{kind}_behavior=[0,0,0,0]" for kind in ("direct", "adaptive", "active"))
    ),
    "framemind": Ablation("one set of initial frames for the whole group", ("low=[8,56]", "high=[8,56]")),
}


def plan_of(method: str) -> Plan:
    return PLANS.get(method, Plan())
