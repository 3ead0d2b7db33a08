"""Small pure functions that rewards are composed of. verl's reward manager over them lives in `rewards.manager`."""

from verl_video_tools.rewards.choices import grade_multiple_choice
from verl_video_tools.rewards.consistency import ConsistencyRules, Verdict, verify_consistency
from verl_video_tools.rewards.temporal import temporal_iou

__all__ = ["ConsistencyRules", "Verdict", "grade_multiple_choice", "temporal_iou", "verify_consistency"]
