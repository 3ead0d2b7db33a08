"""The most expensive call of each tool: as many frames as it can show of a video, at their size."""

from __future__ import annotations

import math

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind.frame_at import FrameAt
from verl_video_tools.methods.framemind.frame_at import frame_size as square_size
from verl_video_tools.methods.framemind.video_clip import VideoClip
from verl_video_tools.methods.longvt.crop_video import CropVideo
from verl_video_tools.methods.videobrain.clip_sample import ClipSample
from verl_video_tools.methods.videobrain.uniform_sample import UniformSample
from verl_video_tools.methods.videozoomer.video_zoom import VideoZoom
from verl_video_tools.video.resize import fit_box, fit_pixels, size_in_box


def crop(tool: CropVideo, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
    """Of the whole video, at the tool's own rate."""
    num_frames = min(tool.max_frames, max(2, math.ceil(info.duration_seconds * tool.fps)))
    return vt.spread_frames(info, num_frames, vt.frame_size(info, tool.min_pixels, tool.max_pixels, envelope))


def zoom(tool: VideoZoom, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
    return vt.spread_frames(info, tool.max_frames, fit_pixels(info.width, info.height, tool.max_pixels, envelope))


def frame(tool: FrameAt, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
    return vt.spread_frames(info, 1, square_size(info, tool.side_pixels, tool.resize, envelope))


def clip(tool: VideoClip, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
    return vt.spread_frames(info, tool.max_frames, square_size(info, tool.side_pixels, tool.resize, envelope))


def choice(tool: vt.ChooseFrames, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
    size = fit_box(info.width, info.height, tool.box_width, tool.box_height, envelope)
    return vt.spread_frames(info, tool.num_frames, size)


def sample(tool: UniformSample | ClipSample, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
    size = size_in_box(info.width, info.height, tool.box_width, tool.box_height, envelope, tool.aspect)
    return vt.spread_frames(info, tool.num_frames, size)
