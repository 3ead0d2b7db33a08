"""verl's reward manager for every method: scores a rollout from the record that its agent loop wrote.

Selected with `reward.reward_manager.source=importlib`, `reward.reward_manager.module.path=pkg://verl_video_tools.rewards.manager`,
`reward.reward_manager.name=VideoToolsRewardManager`.
"""

from __future__ import annotations

from typing import Any

from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from verl_video_tools.agent_loop.settings import method_from_config, unpack_record
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.types import Method, Sample


class VideoToolsRewardManager(RewardManagerBase):
    """Every row returns the same keys: `score`, `acc`, `flagged`, and the components of all methods (0 where a
    component is not the row's method's), because verl stacks them over the batch."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        self._methods: dict[str, Method] = {}

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last output of one rollout.

        Returns:
            `reward_score` (float) and `reward_extra_info` (floats under the same keys for every row).
        """
        item = data[-1]
        trajectory = unpack_record(item.non_tensor_batch["tool_extra_fields"])
        method = self._method(trajectory.method)
        reward = method.zero_reward()
        flagged = bool(trajectory.flags)
        if not flagged:
            reward = await method.score(trajectory, Sample.from_row(item.non_tensor_batch))
        return {"reward_score": reward["score"], "reward_extra_info": reward_info(reward, flagged)}

    def _method(self, name: str) -> Method:
        if name not in self._methods:
            self._methods[name] = method_from_config(name, self.config.actor_rollout_ref.rollout)
        return self._methods[name]


def reward_info(reward: dict[str, float], flagged: bool) -> dict[str, float]:
    """The breakdown under the keys that every row of a run shares."""
    components = {component: 0.0 for name in METHOD_NAMES for component in get_method(name).reward_components}
    return {
        **components,
        **{key: float(value) for key, value in reward.items()},
        "acc": float(reward.get("accuracy", 0.0) > 0.0),
        "flagged": float(flagged),
    }
