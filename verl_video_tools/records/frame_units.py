"""Whether a method speaks of frames by their numbers or by their times."""

from __future__ import annotations

from functools import lru_cache

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Trajectory
from verl_video_tools.methods import method_class, method_names
from verl_video_tools.methods.toolkit import NUMBER_AND_TIME


def speaks_frame_numbers(trajectory: Trajectory) -> bool:
    """Whether the policy was told numbers of frames: those of the video, not of the pictures shown.

    A method does where its tools label frames by number. One that is put together from parts does where one of these
    tools is among them. Of a method that this version does not know, False.
    """
    if trajectory.made_of is not None:
        return bool(_numbering_tools() & set(map(str, trajectory.made_of.get("tools", ()))))
    return _labels_numbers(trajectory.method)


@lru_cache
def _labels_numbers(name: str) -> bool:
    try:
        tools = method_class(name).tool_descriptions
    except UsageError:
        return False
    return any(tool.frame_label == NUMBER_AND_TIME for tool in tools)


@lru_cache
def _numbering_tools() -> frozenset[str]:
    descriptions = [tool for name in method_names() for tool in method_class(name).tool_descriptions]
    return frozenset(tool.name for tool in descriptions if tool.frame_label == NUMBER_AND_TIME)
