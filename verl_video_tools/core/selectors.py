"""Load the selector of the frames shown with the question."""

from __future__ import annotations

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.resolve import resolve
from verl_video_tools.core.tool import FrameSelector

REGISTERED = {"most_similar": "verl_video_tools.methods.toolkit.selectors:most_similar"}


def load_selector(name: str) -> FrameSelector:
    """The selector of a registered name, or at a Python path such as `package.module:function`.

    Raises:
        UsageError: there is none.
    """
    selector: FrameSelector = resolve(name, REGISTERED, "initial_frames_selector")
    if not callable(selector):
        raise UsageError(f"the initial_frames_selector {name!r} must be a function, got {selector!r:.80}")
    return selector
