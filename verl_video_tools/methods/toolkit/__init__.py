"""What the author of a method, tool or frame selector needs, in one place; all of it is public.

The class of a method and what it is made of; grammars (`find_blocks`, `tool_schema`, `load_object`); checks of
arguments; prompts and templates; graders and rewards. Frames by time and number are in `verl_video_tools.video`, oracle
policies of the synthetic world in `methods.toolkit.oracle`.
"""

from verl_video_tools.core.choices import grade_multiple_choice as grade_multiple_choice
from verl_video_tools.core.config import require as require
from verl_video_tools.core.errors import CallError as CallError
from verl_video_tools.core.errors import CallErrorCode as CallErrorCode
from verl_video_tools.core.errors import CallRejected as CallRejected
from verl_video_tools.core.errors import RetrievalError as RetrievalError
from verl_video_tools.core.errors import UsageError as UsageError
from verl_video_tools.core.errors import VideoError as VideoError
from verl_video_tools.core.grading import answer_score as answer_score
from verl_video_tools.core.grading import grade_answer as grade_answer
from verl_video_tools.core.json_text import load_object as load_object
from verl_video_tools.core.prompt_files import load_prompt as load_prompt
from verl_video_tools.core.templates import Template as Template
from verl_video_tools.core.templates import render as render
from verl_video_tools.core.temporal import temporal_iou as temporal_iou
from verl_video_tools.core.types import AnswerLabel as AnswerLabel
from verl_video_tools.core.types import CallRecord as CallRecord
from verl_video_tools.core.types import Compat as Compat
from verl_video_tools.core.types import Content as Content
from verl_video_tools.core.types import ContextPolicy as ContextPolicy
from verl_video_tools.core.types import FrameRequest as FrameRequest
from verl_video_tools.core.types import FrameSelector as FrameSelector
from verl_video_tools.core.types import ImagePart as ImagePart
from verl_video_tools.core.types import Judge as Judge
from verl_video_tools.core.types import Message as Message
from verl_video_tools.core.types import Method as Method
from verl_video_tools.core.types import ParsedTurn as ParsedTurn
from verl_video_tools.core.types import PixelEnvelope as PixelEnvelope
from verl_video_tools.core.types import Retriever as Retriever
from verl_video_tools.core.types import RolloutLimits as RolloutLimits
from verl_video_tools.core.types import SaidCall as SaidCall
from verl_video_tools.core.types import SaidTurn as SaidTurn
from verl_video_tools.core.types import Sample as Sample
from verl_video_tools.core.types import ShownFrame as ShownFrame
from verl_video_tools.core.types import StopReason as StopReason
from verl_video_tools.core.types import Subtitle as Subtitle
from verl_video_tools.core.types import Tool as Tool
from verl_video_tools.core.types import ToolCall as ToolCall
from verl_video_tools.core.types import ToolContext as ToolContext
from verl_video_tools.core.types import ToolDescription as ToolDescription
from verl_video_tools.core.types import ToolOutcome as ToolOutcome
from verl_video_tools.core.types import ToolPlan as ToolPlan
from verl_video_tools.core.types import Trajectory as Trajectory
from verl_video_tools.core.types import Turn as Turn
from verl_video_tools.core.types import VideoInfo as VideoInfo
from verl_video_tools.core.types import content_text as content_text
from verl_video_tools.core.types import segment_of as segment_of
from verl_video_tools.methods.toolkit.arguments import finite_number as finite_number
from verl_video_tools.methods.toolkit.arguments import format_seconds as format_seconds
from verl_video_tools.methods.toolkit.arguments import seconds_argument as seconds_argument
from verl_video_tools.methods.toolkit.blocks import Block as Block
from verl_video_tools.methods.toolkit.blocks import find_between as find_between
from verl_video_tools.methods.toolkit.blocks import find_blocks as find_blocks
from verl_video_tools.methods.toolkit.blocks import without_blocks as without_blocks
from verl_video_tools.methods.toolkit.choose_frames import NUMBER_AND_TIME as NUMBER_AND_TIME
from verl_video_tools.methods.toolkit.choose_frames import ChooseFrames as ChooseFrames
from verl_video_tools.methods.toolkit.frame_lines import FRAME_TEMPLATES as FRAME_TEMPLATES
from verl_video_tools.methods.toolkit.frame_lines import frame_lines as frame_lines
from verl_video_tools.methods.toolkit.frame_lines import numbered_frames as numbered_frames
from verl_video_tools.methods.toolkit.frame_range import read_frame_range as read_frame_range
from verl_video_tools.methods.toolkit.frame_size import frame_size as frame_size
from verl_video_tools.methods.toolkit.frame_size import spread_frames as spread_frames
from verl_video_tools.methods.toolkit.hermes import tool_schema as tool_schema
from verl_video_tools.methods.toolkit.refusals import UNKNOWN as UNKNOWN
from verl_video_tools.methods.toolkit.refusals import format_error as format_error
from verl_video_tools.methods.toolkit.refusals import malformed_call as malformed_call
from verl_video_tools.methods.toolkit.refusals import refuse_surplus_calls as refuse_surplus_calls
from verl_video_tools.methods.toolkit.spans import span_argument as span_argument
from verl_video_tools.methods.toolkit.subtitle_tools import SubtitlesAt as SubtitlesAt
from verl_video_tools.methods.toolkit.subtitle_tools import SubtitleSearch as SubtitleSearch
from verl_video_tools.methods.toolkit.text_results import with_text as with_text
