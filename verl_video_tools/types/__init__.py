"""The domain: frames, messages, rows, calls and turns, trajectories, and what a method is.

Import the names from here. Nothing in this package imports torch, PyAV or verl.
"""

from verl_video_tools.types.frames import FrameBatch, FrameRecord, FrameRequest, PixelEnvelope, Rounding, VideoInfo
from verl_video_tools.types.messages import IMAGE_MARK, Content, ImagePart, Message, content_images, content_text
from verl_video_tools.types.method import Compat, ContextPolicy, FrameSelector, Method, RecipeBudget, Tool, ToolContext
from verl_video_tools.types.sample import QuestionType, Sample, default_question_type, segment_of
from verl_video_tools.types.services import AnswerLabel, Judge, Retriever
from verl_video_tools.types.trajectory import (
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
    "RecipeBudget",
    "Retriever",
    "Rounding",
    "Sample",
    "StopReason",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolOutcome",
    "ToolPlan",
    "Trajectory",
    "Turn",
    "VideoInfo",
    "content_images",
    "content_text",
    "default_question_type",
    "segment_of",
]
