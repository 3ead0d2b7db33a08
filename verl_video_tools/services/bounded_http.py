"""An HTTP client that takes replies of bounded size from the server that it was told to ask, and from no other."""

from __future__ import annotations

from typing import Any

from openai import DefaultAsyncHttpxClient

from verl_video_tools.core.errors import EndpointError
from verl_video_tools.services.transport import AttemptFailed

MAX_REPLY_BYTES = 8 << 20
"""Of a reply's body. The longest completions, with their reasoning, take about 1 MB."""


class BoundedHttpClient(DefaultAsyncHttpxClient):
    """The client of the `openai` package, which would read a body of any size into memory and follow redirects.

    Compressed bodies are refused, since a small one may hold any number of bytes; servers are asked not to send them.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(follow_redirects=False, **options)
        self.headers["Accept-Encoding"] = "identity"

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """A response with all of its body.

        Raises:
            AttemptFailed: the body is too large, or compressed.
            EndpointError: a redirect.
        """
        response = await super().send(request, stream=True, **options)
        try:
            if response.has_redirect_location:
                raise EndpointError(
                    f"HTTP {response.status_code}: redirected to {response.headers['location']!r:.200}; redirects are "
                    "not followed, so give that address as base_url if it is right"
                )
            encoding = response.headers.get("content-encoding", "identity")
            if encoding != "identity":
                raise AttemptFailed(f"the reply is compressed ({encoding!r:.40}), though it was asked not to be")
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_REPLY_BYTES:
                    raise AttemptFailed(f"the reply is larger than {MAX_REPLY_BYTES} bytes, and was not read on")
        finally:
            await response.aclose()
        return type(response)(
            response.status_code,
            headers=response.headers,
            content=bytes(body),
            request=request,
            extensions=response.extensions,
        )
