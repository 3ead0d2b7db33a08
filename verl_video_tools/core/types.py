"""The data types: frames, messages, rows, calls and turns, trajectories, and the base class of methods.

Import the names from here. This folder does not import torch, PyAV or verl.
"""

from verl_video_tools.core.frames import FrameBatch as FrameBatch
from verl_video_tools.core.frames import FrameRecord as FrameRecord
from verl_video_tools.core.frames import FrameRequest as FrameRequest
from verl_video_tools.core.frames import PixelEnvelope as PixelEnvelope
from verl_video_tools.core.frames import Rounding as Rounding
from verl_video_tools.core.frames import VideoInfo as VideoInfo
from verl_video_tools.core.messages import IMAGE_MARK as IMAGE_MARK
from verl_video_tools.core.messages import Content as Content
from verl_video_tools.core.messages import ImagePart as ImagePart
from verl_video_tools.core.messages import Message as Message
from verl_video_tools.core.messages import content_images as content_images
from verl_video_tools.core.messages import content_text as content_text
from verl_video_tools.core.messages import with_pixels as with_pixels
from verl_video_tools.core.method import Compat as Compat
from verl_video_tools.core.method import ContextPolicy as ContextPolicy
from verl_video_tools.core.method import Method as Method
from verl_video_tools.core.method import RolloutLimits as RolloutLimits
from verl_video_tools.core.method import append as append
from verl_video_tools.core.regions import Box as Box
from verl_video_tools.core.regions import BoxUnit as BoxUnit
from verl_video_tools.core.regions import PixelBox as PixelBox
from verl_video_tools.core.regions import Region as Region
from verl_video_tools.core.sample import Sample as Sample
from verl_video_tools.core.sample import Subtitle as Subtitle
from verl_video_tools.core.services import AnswerLabel as AnswerLabel
from verl_video_tools.core.services import Judge as Judge
from verl_video_tools.core.services import ModelCall as ModelCall
from verl_video_tools.core.services import ModelLimits as ModelLimits
from verl_video_tools.core.services import ModelReply as ModelReply
from verl_video_tools.core.services import RecordedByCall as RecordedByCall
from verl_video_tools.core.services import Retriever as Retriever
from verl_video_tools.core.services import ToolModel as ToolModel
from verl_video_tools.core.tool import FrameSelector as FrameSelector
from verl_video_tools.core.tool import ShownFrame as ShownFrame
from verl_video_tools.core.tool import Tool as Tool
from verl_video_tools.core.tool import ToolContext as ToolContext
from verl_video_tools.core.tool import ToolDescription as ToolDescription
from verl_video_tools.core.trajectory import CacheUse as CacheUse
from verl_video_tools.core.trajectory import CallRecord as CallRecord
from verl_video_tools.core.trajectory import ParsedTurn as ParsedTurn
from verl_video_tools.core.trajectory import StopReason as StopReason
from verl_video_tools.core.trajectory import ToolCall as ToolCall
from verl_video_tools.core.trajectory import ToolOutcome as ToolOutcome
from verl_video_tools.core.trajectory import ToolPicture as ToolPicture
from verl_video_tools.core.trajectory import ToolPlan as ToolPlan
from verl_video_tools.core.trajectory import Trajectory as Trajectory
from verl_video_tools.core.trajectory import Turn as Turn
from verl_video_tools.core.trajectory import Verification as Verification
from verl_video_tools.core.truths import QuestionType as QuestionType
from verl_video_tools.core.truths import default_question_type as default_question_type
from verl_video_tools.core.truths import segment_of as segment_of
