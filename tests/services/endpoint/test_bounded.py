"""What a reply may cost: its size is bounded, and it sends nobody elsewhere."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.judge_server import JudgeServer, Reply, completion
from verl_video_tools.core.errors import EndpointError
from verl_video_tools.services.config import EndpointConfig
from verl_video_tools.services.endpoint import EndpointClient

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

MEGABYTE = 1 << 20
BUFFERS_MEGABYTES = 32
"""That the kernel may take from a sender before anybody has read it."""

Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def reply_of(base_url: str, **options: Any) -> Any:
    config = EndpointConfig(base_url=base_url, model="any", **options)
    async with EndpointClient(config) as client:
        return (await client.complete({"messages": []}, lambda completion: completion)).text


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """Address of a server that answers each request so; its clients are cut off in the end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await handler(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has gone
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("is_length_told", [True, False])
async def test_a_reply_of_a_gigabyte_is_not_read_to_its_end(is_length_told: bool) -> None:
    sent_megabytes = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent_megabytes
        length = f"Content-Length: {1 << 30}" if is_length_told else "Transfer-Encoding: chunked"
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode())
        for _ in range(1024):
            data = b" " * MEGABYTE
            writer.write(data if is_length_told else b"%x\r\n%s\r\n" % (MEGABYTE, data))
            await writer.drain()
            sent_megabytes += 1

    async with serving(flood) as base_url:
        with pytest.raises(EndpointError, match=r"in 4 attempts.*the reply is larger than 8388608 bytes"):
            await reply_of(base_url)
    assert 0 < sent_megabytes < 4 * BUFFERS_MEGABYTES


async def test_a_compressed_reply_is_not_unpacked() -> None:
    """A gigabyte of spaces is a megabyte then."""
    bomb = Reply(gzip.compress(b" " * MEGABYTE), headers=(("Content-Encoding", "gzip"),))
    with JudgeServer(reply=lambda request: bomb) as server:
        with pytest.raises(EndpointError, match="the reply is compressed \\('gzip'\\)"):
            await reply_of(server.base_url)
        assert server.headers[0]["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_told_and_not_followed(status: int) -> None:
    """Question, truth and answer would go to an address that nobody has configured."""
    with JudgeServer() as elsewhere:
        target = f"{elsewhere.base_url}/chat/completions"
        redirect = Reply(b"", status=status, headers=(("Location", target),))
        with JudgeServer(reply=lambda request: redirect) as server:
            with pytest.raises(EndpointError, match=f"HTTP {status}: redirected to '{target}'; redirects are not"):
                await reply_of(server.base_url)
            assert len(server.requests) == 1
        assert elsewhere.requests == [] and elsewhere.num_model_requests == 0


async def test_a_long_reply_arrives_whole() -> None:
    text = "long " * 400_000
    with JudgeServer(reply=lambda request: completion(text)) as server:
        assert await reply_of(server.base_url) == text
