"""A reply in a form that can be used: asked for again, with what was wrong, until there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from verl_video_tools.services.endpoint.chat import Completion, read_completion
from verl_video_tools.services.endpoint.client import EndpointClient
from verl_video_tools.services.endpoint.retries import AttemptFailed

Result = TypeVar("Result")


class UnusableReply(Exception):
    """Why a reply cannot be used.

    Attributes:
        reminder: what the model is told before it replies again.
    """

    def __init__(self, reason: str, reminder: str) -> None:
        super().__init__(reason)
        self.reminder = reminder


async def usable_reply(
    client: EndpointClient, messages: Sequence[Mapping[str, Any]], read: Callable[[Completion], Result]
) -> tuple[Result, str]:
    """What `read` makes of the first reply that it does not refuse with `UnusableReply`, and the name of the model.

    Raises:
        EndpointError: there is none.
    """
    body: dict[str, Any] = {"messages": [*messages], "temperature": 0.0}

    async def attempt() -> Result:
        completion = read_completion(await exchange.chat_completion(body))
        try:
            return read(completion)
        except UnusableReply as error:
            # Asked the same, a model says the same again.
            refused = {"role": "assistant", "content": completion.text}
            body["messages"] = [*messages, refused, {"role": "user", "content": error.reminder}]
            raise AttemptFailed(str(error)) from error

    async with client.exchange() as exchange:
        body["model"] = await exchange.model()
        return await exchange.retried(attempt), body["model"]
