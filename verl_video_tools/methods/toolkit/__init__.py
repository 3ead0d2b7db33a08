"""What the author of a method, tool or frame selector needs, in one place; all of it is public.

The class of a method and what it is made of; grammars (`find_blocks`, `tool_schema`, `load_object`); checks of
arguments; prompts and templates; graders and rewards. Frames by time and number are in `verl_video_tools.video`, oracle
policies of the synthetic world in `methods.toolkit.oracle`.
"""

from verl_video_tools.core.choices import grade_multiple_choice
from verl_video_tools.core.config import require
from verl_video_tools.core.errors import CallError, CallErrorCode, CallRejected, RetrievalError, UsageError, VideoError
from verl_video_tools.core.grading import answer_worth, grade_answer
from verl_video_tools.core.json_text import load_object
from verl_video_tools.core.prompt_files import load_prompt
from verl_video_tools.core.templates import Template, render
from verl_video_tools.core.temporal import temporal_iou
from verl_video_tools.core.types import (
    AnswerLabel,
    Compat,
    Content,
    ContextPolicy,
    FrameRequest,
    FrameSelector,
    ImagePart,
    Judge,
    Message,
    Method,
    ParsedTurn,
    PixelEnvelope,
    Retriever,
    RolloutLimits,
    Sample,
    StopReason,
    Tool,
    ToolCall,
    ToolContext,
    ToolDescription,
    ToolOutcome,
    ToolPlan,
    Trajectory,
    VideoInfo,
)
from verl_video_tools.methods.toolkit.arguments import finite_number, format_seconds
from verl_video_tools.methods.toolkit.blocks import find_blocks
from verl_video_tools.methods.toolkit.choose_frames import ChooseFrames
from verl_video_tools.methods.toolkit.frame_lines import frame_lines
from verl_video_tools.methods.toolkit.frame_size import frame_size
from verl_video_tools.methods.toolkit.hermes import tool_schema
from verl_video_tools.methods.toolkit.numbered_frames import numbered_frames
from verl_video_tools.methods.toolkit.refusals import format_error, refuse_surplus_calls

__all__ = [
    "AnswerLabel",
    "CallError",
    "CallErrorCode",
    "CallRejected",
    "ChooseFrames",
    "Compat",
    "Content",
    "ContextPolicy",
    "FrameRequest",
    "FrameSelector",
    "ImagePart",
    "Judge",
    "Message",
    "Method",
    "ParsedTurn",
    "PixelEnvelope",
    "RetrievalError",
    "Retriever",
    "RolloutLimits",
    "Sample",
    "StopReason",
    "Template",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDescription",
    "ToolOutcome",
    "ToolPlan",
    "Trajectory",
    "UsageError",
    "VideoError",
    "VideoInfo",
    "answer_worth",
    "find_blocks",
    "finite_number",
    "format_error",
    "format_seconds",
    "frame_lines",
    "frame_size",
    "grade_answer",
    "grade_multiple_choice",
    "load_object",
    "load_prompt",
    "numbered_frames",
    "refuse_surplus_calls",
    "render",
    "require",
    "temporal_iou",
    "tool_schema",
]
