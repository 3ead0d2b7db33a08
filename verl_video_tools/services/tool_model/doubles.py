"""Stand-ins for a tool's model, for tests and for replay without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from verl_video_tools.core.errors import ToolModelError
from verl_video_tools.core.messages import Content
from verl_video_tools.core.model_calls import ModelLimits, ModelReply

NAME = "scripted"
"""The model that its replies name."""


class ScriptedToolModel:
    """Gives replies in order, whatever it is asked, and remembers what that was.

    Args:
        replies: texts; an exception among them is raised in its place.
        limits: of one rollout.
    """

    def __init__(self, replies: Iterable[str | Exception], limits: ModelLimits | None = None) -> None:
        self._replies = iter(replies)
        self.limits = limits or ModelLimits()
        self.asked: list[Content] = []

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        """The next reply. Raises ToolModelError where there is none."""
        self.asked.append(content)
        reply = next(self._replies, None)
        if reply is None:
            raise ToolModelError(f"the script of the tool's model has no reply number {len(self.asked)}")
        if isinstance(reply, Exception):
            raise reply
        return ModelReply(reply, NAME)


class FunctionToolModel:
    """Replies what a function makes of the message, and remembers what it was asked.

    Args:
        function: gives the reply's text, or a whole reply; what it raises is raised.
    """

    def __init__(self, function: Callable[[Content], str | ModelReply], limits: ModelLimits | None = None) -> None:
        self._function = function
        self.limits = limits or ModelLimits()
        self.asked: list[Content] = []

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        self.asked.append(content)
        reply = self._function(content)
        return reply if isinstance(reply, ModelReply) else ModelReply(reply, NAME)
