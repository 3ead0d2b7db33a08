"""verl's reward manager for every method: scores a rollout from the record that its agent loop wrote.

Selected with `reward.reward_manager.source=importlib`, `reward.reward_manager.module.path=pkg://verl_video_tools.verl_plugin.reward_manager`,
`reward.reward_manager.name=VideoToolsRewardManager`.
"""

from __future__ import annotations

import logging
import math
from typing import Any, NoReturn

from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.method import method_of_rollout, zero_reward
from verl_video_tools.core.types import Method, Sample
from verl_video_tools.grading.answers import decided_by_rule, is_unread
from verl_video_tools.methods.breakdown import all_components, reward_info
from verl_video_tools.services.judge import JudgeCounters, LLMJudge
from verl_video_tools.verl_plugin.settings import (
    TURN_REWARDS,
    configured_methods,
    judge_config,
    method_from_config,
    unpack_record,
)

logger = logging.getLogger(__name__)


class VideoToolsRewardManager(RewardManagerBase):
    """Scores each rollout by its method. Every row returns the same keys, because verl stacks them over the batch:
    `score`, `acc`, `flagged`, the components of all methods (0 for a component that the row's method does not have),
    what the judge did (`judge_info`), and `unread`.

    Args:
        reward_router_address: host and port of verl's reward-model server, which is the judge if no other is
            configured.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        **_: Any,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        self._methods: dict[str, Method] = {}
        self._components = all_components(configured_methods(config.actor_rollout_ref.rollout))
        self._judge: LLMJudge | None = None
        judge = judge_config(config, reward_router_address)
        if judge is not None:
            self._judge = LLMJudge(judge.share(config.reward.num_workers))

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last output of one rollout.

        If the judge has no verdict, the rollout is flagged. The trainer then keeps it out of training, or ends the run
        (`JudgeConfig.on_failure`). The rollout is also flagged if its method raises or returns a reward that is not
        finite: an exception would cost the whole group, and such a number would spoil every advantage in it.

        Returns:
            `reward_score` (float) and `reward_extra_info` (floats under the same keys for every row).
        """
        item = data[-1]
        trajectory = unpack_record(item.non_tensor_batch["tool_extra_fields"])
        method = method_of_rollout(self._method(trajectory.method), trajectory.settings)
        reward = zero_reward(method)
        flagged, skipped, unjudged, sample = bool(trajectory.flags), False, False, None
        counters = JudgeCounters()
        if not flagged:
            sample = Sample.from_row(item.non_tensor_batch)
            judge = None if self._judge is None else self._judge.counting_in(counters)
            try:
                reward = _finite(await method.score(trajectory, sample, judge), method)
            except JudgeError as error:
                logger.error("rollout of row %s: %s", sample.extra_info.get("index"), error)
                flagged = unjudged = True
            except Exception:
                logger.exception("rollout of row %s: its reward failed", sample.extra_info.get("index"))
                flagged = True
            answered_open = sample.question_type == "open" and trajectory.answer is not None
            skipped = answered_open and decided_by_rule(trajectory.answer, sample) is not None
        info: dict[str, Any] = dict.fromkeys(self._components, 0.0) | reward_info(method, reward, sample, flagged)
        info |= judge_info(counters, skipped, unjudged)
        info["unread"] = float(sample is not None and is_unread(trajectory.answer, sample))
        if method.turn_components:  # the agent loop worker takes it out again: verl's metrics know numbers alone
            info[TURN_REWARDS] = [turn.rewards for turn in trajectory.turns if not flagged]
        return {"reward_score": reward["score"], "reward_extra_info": info}

    def _method(self, name: str) -> Method:
        """The run's, before what a rollout has of its own."""
        if name not in self._methods:
            self._methods[name] = method_from_config(name, self.config.actor_rollout_ref.rollout)
        return self._methods[name]


def _finite(reward: dict[str, float], method: Method) -> dict[str, float]:
    if bad := {name: value for name, value in reward.items() if not math.isfinite(value)}:
        raise ValueError(f"{type(method).__name__}.components gave {bad}; rewards are finite numbers")
    return reward


def judge_info(counters: JudgeCounters, skipped: bool, unjudged: bool) -> dict[str, float]:
    """The judge's part in one reward, under the keys that every row of a run has.

    Args:
        skipped: a rule graded the answer to an open question.
        unjudged: the rollout is flagged because there is no verdict; the trainer and dynamic sampling read it from
            here.
    """
    return {
        "judge_calls": float(counters.calls),
        "judge_cache_hits": float(counters.cache_hits),
        "judge_failed": float(unjudged),
        "judge_attempts": float(counters.attempts),
        "judge_failed_attempts": float(counters.failed_attempts),
        "judge_latency_ms": counters.latency_ms_p50,
        "judge_skipped": float(skipped),
    }


async def scored_by_manager(*_: Any, **__: Any) -> NoReturn:
    """A function for `reward.custom_reward_function`. Without such a function verl uses its reward model as a
    classifier.

    Raises:
        NotImplementedError: always, because our reward manager scores without it.
    """
    raise NotImplementedError("rollouts are scored by VideoToolsRewardManager; select it with reward.reward_manager")
