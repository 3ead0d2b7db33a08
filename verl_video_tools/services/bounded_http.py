"""What comes in from an endpoint: bounded in size, in Unicode, and from the server of the request."""

from __future__ import annotations

import json
from typing import Any

from openai import DefaultAsyncHttpxClient

from verl_video_tools.core.errors import EndpointError
from verl_video_tools.services.attempts import ATTEMPTS, NO_RETRY, BrokenReply

MAX_REPLY_BYTES = 8 << 20
"""Of a reply's body. The longest completions, with their reasoning, take about 1 MB."""

_RETRY_HEADER = "retry-after"


class BoundedHttpClient(DefaultAsyncHttpxClient):
    """The client of the `openai` package, which would read a body of any size into memory and follow redirects.

    Compressed bodies are refused, since a small one may hold any number of bytes; requests say so.
    Of a reply's headers only `Retry-After` has a meaning here.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(follow_redirects=False, **options)
        self.headers["Accept-Encoding"] = "identity"

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """A response with all of its body, as `readable` gives it.

        Raises:
            BrokenReply: the body is too large, or compressed.
            EndpointError: a redirect.
        """
        attempts = ATTEMPTS.get()
        attempts.num_sent += 1
        try:
            response = await super().send(request, stream=True, **options)
            try:
                kind, content = readable(await _body(response))
            finally:
                await response.aclose()
        except Exception as error:
            attempts.last_failure = f"{type(error).__name__}: {error}"
            raise
        if response.is_error:
            attempts.last_failure = f"HTTP {response.status_code}: {' '.join(content.decode().split()):.200}"
        headers = [(name, value) for name, value in response.headers.items() if name.lower() == _RETRY_HEADER]
        attempts.num_internal_errors += response.status_code == 500
        if attempts.fails_on_this():
            headers.append(NO_RETRY)
        return type(response)(
            response.status_code,
            headers=[*headers, ("content-type", kind)],
            content=content,
            request=request,
            extensions=response.extensions,
        )


async def _body(response: Any) -> bytes:
    if response.has_redirect_location:
        raise EndpointError(
            f"HTTP {response.status_code}: redirected to {response.headers['location']!r:.200}; redirects are "
            "not followed, so give that address as base_url if it is right"
        )
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise BrokenReply(f"the reply is compressed ({encoding!r:.40}), though it was asked not to be")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_REPLY_BYTES:
            raise BrokenReply(f"the reply is larger than {MAX_REPLY_BYTES} bytes, and was not read on")
    return bytes(body)


def readable(body: bytes) -> tuple[str, bytes]:
    """Type and content of a reply's body: JSON whose texts all have UTF-8, whatever the server calls it, else text."""
    text = body.decode("utf-8", "replace")
    try:
        # Half a surrogate pair, which JSON may hold as an escape, has no UTF-8: a tokenizer or a file would fail on it.
        return "application/json", json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):  # no JSON, or nested too deep
        return "text/plain; charset=utf-8", text.encode()
