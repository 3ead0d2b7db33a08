"""The domain: frames, messages, rows, calls and turns, trajectories, and what a method is.

Import the names from here. Nothing in this package imports torch, PyAV or verl.
"""

from verl_video_tools.core.frames import FrameBatch, FrameRecord, FrameRequest, PixelEnvelope, Rounding, VideoInfo
from verl_video_tools.core.messages import (
    IMAGE_MARK,
    Content,
    ImagePart,
    Message,
    content_images,
    content_text,
    with_pixels,
)
from verl_video_tools.core.method import Compat, ContextPolicy, Method, RolloutLimits
from verl_video_tools.core.sample import Sample
from verl_video_tools.core.segments import segment_of
from verl_video_tools.core.services import AnswerLabel, Judge, Retriever
from verl_video_tools.core.tool import FrameSelector, Tool, ToolContext, ToolDescription
from verl_video_tools.core.trajectory import (
    CacheUse,
    CallRecord,
    ParsedTurn,
    StopReason,
    ToolCall,
    ToolOutcome,
    ToolPlan,
    Trajectory,
    Turn,
)
from verl_video_tools.core.truths import QuestionType, default_question_type

__all__ = [
    "IMAGE_MARK",
    "AnswerLabel",
    "CacheUse",
    "CallRecord",
    "Compat",
    "Content",
    "ContextPolicy",
    "FrameBatch",
    "FrameRecord",
    "FrameRequest",
    "FrameSelector",
    "ImagePart",
    "Judge",
    "Message",
    "Method",
    "ParsedTurn",
    "PixelEnvelope",
    "QuestionType",
    "Retriever",
    "RolloutLimits",
    "Rounding",
    "Sample",
    "StopReason",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDescription",
    "ToolOutcome",
    "ToolPlan",
    "Trajectory",
    "Turn",
    "VideoInfo",
    "content_images",
    "content_text",
    "default_question_type",
    "segment_of",
    "with_pixels",
]
