"""Public functions that rewards are composed of. verl's reward manager over them is in `verl_plugin.reward_manager`."""

from verl_video_tools.core.boxes import (
    box_giou,
    box_iou,
    centre_distance,
    centre_reward,
    giou_reward,
    point_in_box,
)
from verl_video_tools.core.choices import grade_multiple_choice
from verl_video_tools.core.temporal import temporal_iou
from verl_video_tools.core.tracks import box_at, mean_iou_on_track, track_iou
from verl_video_tools.methods.framethinker.consistency import ConsistencyRules, Verdict, verify_consistency

__all__ = [
    "ConsistencyRules",
    "Verdict",
    "box_at",
    "box_giou",
    "box_iou",
    "centre_distance",
    "centre_reward",
    "giou_reward",
    "grade_multiple_choice",
    "mean_iou_on_track",
    "point_in_box",
    "temporal_iou",
    "track_iou",
    "verify_consistency",
]
