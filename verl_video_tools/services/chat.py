"""Messages and completions in the form in which they travel to and from an OpenAI-compatible endpoint."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from verl_video_tools.core.image_files import encode_image
from verl_video_tools.core.types import ImagePart, Message, content_images
from verl_video_tools.services.endpoint import EndpointClient
from verl_video_tools.services.transport import AttemptFailed, BrokenReply, Unavailable

Result = TypeVar("Result")

_UNFINISHED = frozenset({"abort", "aborted", "error"})
"""Reasons with which servers send what there is of a reply that they have not finished, as vLLM when it is stopped."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What a chat model replied."""

    text: str
    """Empty where the model sent nothing but reasoning in a field of its own."""
    finish_reason: str | None = None
    """`length` where the reply was cut at its token limit."""
    stop_reason: str | None = None
    """The stop string that ended the reply; only vLLM and SGLang say so."""
    tells_stop: bool = False
    """The endpoint would have named a stop string, had one ended the reply."""
    num_tokens: int = 0
    """Tokens generated, 0 where the endpoint does not count them."""
    reasoning: str | None = None
    """Native reasoning in a field of its own, as servers with a reasoning parser send it; never empty."""
    num_prompt_tokens: int = 0
    """Tokens of the request, images included; 0 where the endpoint does not count them."""
    num_discarded_tokens: int = 0
    """Tokens of an earlier reply to the same request, which could not be used."""


def read_completion(reply: Any) -> Completion:
    """The first choice of a chat completion.

    Raises:
        BrokenReply: the reply is none, or its content is no text.
        Unavailable: the server did not finish it.
    """
    try:
        choice = reply["choices"][0]
        text = choice["message"]["content"]
        reasoning = _reasoning(choice["message"])
        if text is None and reasoning is not None:  # cut before a word was said
            text = ""
        usage = reply.get("usage") or {}
        # vLLM says `stop_reason`, SGLang `matched_stop`; null or a number is a token that ends a turn.
        stop_reason = choice.get("stop_reason", choice.get("matched_stop"))
        tells_stop = not {"stop_reason", "matched_stop"}.isdisjoint(choice)
        num_tokens, num_prompt_tokens = (_count(usage.get(f"{kind}_tokens")) for kind in ("completion", "prompt"))
        given_reason = choice.get("finish_reason")
        finish_reason = given_reason if isinstance(given_reason, str) else None
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        text = None
    if not isinstance(text, str):
        raise BrokenReply(f"the reply is no chat completion: {reply!r:.200}")
    if finish_reason in _UNFINISHED:
        raise Unavailable(f"the endpoint did not finish its reply (finish_reason {finish_reason!r})")
    return Completion(
        text,
        finish_reason,
        stop_reason if isinstance(stop_reason, str) else None,
        tells_stop,
        num_tokens,
        reasoning,
        num_prompt_tokens,
    )


def _count(given: Any) -> int:
    """Python's JSON has an infinity, which is no whole number."""
    return given if isinstance(given, int) and given > 0 else 0


def _reasoning(message: Mapping[str, Any]) -> str | None:
    """vLLM says `reasoning`, older releases and SGLang `reasoning_content`."""
    found = (message.get(name) for name in ("reasoning_content", "reasoning"))
    return next((text for text in found if isinstance(text, str) and text.strip()), None)


def restore_stop(completion: Completion, stop: Sequence[str]) -> str:
    """The text with the stop string that ended it, where the endpoint left it out.

    One that never names stop strings is taken to have left out a closing tag whose opening tag stands unclosed in the
    text; what native reasoning names does not count. Where one does, and names none, the model itself ended its turn
    there, and nothing is added.
    """
    text = completion.text
    if completion.reasoning is not None and not text.strip():
        return text  # it ended the reasoning
    if completion.finish_reason != "stop" or text.endswith(tuple(stop)):
        return text
    if completion.stop_reason in stop:
        return text + str(completion.stop_reason)
    if completion.tells_stop:
        return text
    spoken = text.rpartition("</think>")[2]
    for string in stop:
        closing = re.fullmatch(r"</(\w+)>", string)
        if closing is not None and spoken.count(f"<{closing[1]}>") > spoken.count(string):
            return text + string
    return text


VIDEO_JPEG_QUALITY = 95
"""Of the frames of a video, which travel as JPEG where nothing else is asked for."""


def to_chat_message(message: Message, jpeg_quality: int | None = None, *, as_video: bool = False) -> dict[str, Any]:
    """A message with its texts and images in reading order.

    Args:
        jpeg_quality: 1 to 95; None sends PNG, which is lossless.
        as_video: all its images are one video, which stands at the place of the first.

    Raises:
        ValueError: an image has no pixels.
    """
    if all(isinstance(part, str) for part in message.content):
        return {"role": message.role, "content": "".join(map(str, message.content))}
    parts: list[dict[str, Any]] = []
    for part in message.content:
        if isinstance(part, ImagePart) and as_video:
            if not any(other["type"] == "video_url" for other in parts):
                parts.append({"type": "video_url", "video_url": {"url": video_url(message, jpeg_quality)}})
        elif isinstance(part, ImagePart):
            parts.append({"type": "image_url", "image_url": {"url": data_url(part, jpeg_quality)}})
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += part
        else:
            parts.append({"type": "text", "text": part})
    return {"role": message.role, "content": parts}


def video_url(message: Message, jpeg_quality: int | None = None) -> str:
    """The images of a message as the `data:` URL of one video: frames as JPEG, as vLLM takes them decoded and sampled.

    Raises:
        ValueError: one has no pixels.
    """
    images = content_images(message.content)
    frames = (data_url(image, jpeg_quality or VIDEO_JPEG_QUALITY).rpartition(",")[2] for image in images)
    return f"data:video/jpeg;base64,{','.join(frames)}"


def data_url(image: ImagePart, jpeg_quality: int | None = None) -> str:
    """One image as a `data:` URL. Raises ValueError if it has no pixels."""
    if image.pixels_HWC is None:
        raise ValueError(f"an image without pixels cannot be sent: {image.record}")
    kind, data = encode_image(image.pixels_HWC, jpeg_quality)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


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
