"""Public functions that rewards are composed of. verl's reward manager over them is in `verl_plugin.reward_manager`."""

from verl_video_tools.grading.choices import grade_multiple_choice
from verl_video_tools.grading.overlap import box_iou, temporal_iou
from verl_video_tools.methods.framethinker.grammar import Verdict, verify_consistency

__all__ = [
    "Verdict",
    "box_iou",
    "grade_multiple_choice",
    "temporal_iou",
    "verify_consistency",
]
