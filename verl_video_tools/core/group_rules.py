"""What of a method concerns the group: all rollouts of one question in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from verl_video_tools.core.sample import Sample
from verl_video_tools.core.trajectory import Trajectory


class GroupRules:
    """Part of `Method`: a reward that compares a rollout with its siblings, and sampling that differs between them.

    Fields of the method that differ between siblings (frames, a variant of the prompt) are `Method.for_session`'s.
    """

    group_components: ClassVar[tuple[str, ...]] = ()
    """Those of `reward_components` that a rollout earns only beside its siblings: `score_group` returns them, and
    `components` does not. Without siblings each is 0."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """
        Raises:
            TypeError: a name in `group_components` is not one of `reward_components`, or nothing scores them.
        """
        super().__init_subclass__(**keywords)
        if unknown := sorted(set(cls.group_components) - set(getattr(cls, "reward_components", ()))):
            raise TypeError(f"{cls.__name__}.group_components has {unknown}, which reward_components lacks; add them")
        if cls.group_components and cls.score_group is GroupRules.score_group:
            raise TypeError(f"{cls.__name__} has group_components, and no score_group that returns them")

    def score_group(
        self, trajectories: Sequence[Trajectory], rewards: Sequence[Mapping[str, float]], sample: Sample
    ) -> Sequence[Mapping[str, float]]:
        """What the rollouts of a group earn by comparison: for each the `group_components`, weighted.

        Called once per training group, after its last rollout has been scored and before dynamic sampling, metrics and
        advantages read any reward. It is called on the run's method; a rollout's own fields are in
        `Trajectory.settings`. It runs in the agent loop worker, so it should take milliseconds, not seconds.

        Args:
            trajectories: two or more, in order of their number in the group. Flagged and lost rollouts are left out.
            rewards: of each of them: `score` and all `reward_components` as `Method.score` gave them, `acc`.
            sample: the question.
        """
        raise NotImplementedError

    def sampling_options(self, session_id: int, group_size: int, validate: bool) -> Mapping[str, float]:
        """Options of sampling in which a rollout differs from the run's: `temperature`, `top_p`, `top_k`.

        Options for a rollout of validation, or one that is sampled greedily, are not applied.

        Args:
            session_id: number of the rollout in its group, from 0.
            group_size: rollouts of a group.
            validate: the rollout is for validation, not for training.
        """
        return {}
