"""Surface `bodies`: what comes over HTTP: replies of endpoints, and requests to the MCP server."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import httpx
from mcp.server.mcpserver.exceptions import ToolError
from openai import AsyncOpenAI

from tests.fuzz import texts
from tests.fuzz.damage import bytes_of, damaged, damages, text_of
from tests.fuzz.surface import Surface
from tests.videos.files import write_video
from verl_video_tools.core.errors import EndpointError, JudgeError
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.mcp_server.folder import VideoFolder
from verl_video_tools.mcp_server.limits import CallLimits
from verl_video_tools.mcp_server.server import VideoTools, make_server
from verl_video_tools.services.endpoint import retries
from verl_video_tools.services.endpoint.asking import usable_reply
from verl_video_tools.services.endpoint.chat import Completion, restore_stop
from verl_video_tools.services.endpoint.client import _Session
from verl_video_tools.services.endpoint.routes import Place
from verl_video_tools.services.judge import JudgeConfig, LLMJudge

URL = "http://127.0.0.1:1/v1"
STATUSES = [*[200] * 12, 204, 302, 400, 401, 404, 408, 413, 429, 500, 503]
TYPES = ["application/json"] * 8 + ["text/html", "application/octet-stream", "application/json; charset=utf-16", ""]
HEADERS: list[tuple[str, str]] = [
    *[
        ("retry-after", value)
        for value in ("0", "-1", "nan", "1e999", "soon", "Wed, 21 Oct 2015 07:28:00 GMT", "9" * 30)
    ],
    *[("location", "http://127.0.0.1:1/x"), ("content-encoding", "gzip"), ("x-request-id", "\u00e9")],
]
CHAT = {
    "id": "1",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": '{"label": "correct"}'}, "finish_reason": "stop"}
    ],
    "usage": {"completion_tokens": 7},
}
MODELS = {"object": "list", "data": [{"id": "judge", "object": "model"}]}
ASKED = ("verdict", "verdict", "verdict", "text", "models", "version")
TOOLS = (
    *("list_videos", "probe_video", "show_frames_at", "show_frames_between", "zoom", "show_grid"),
    *("frame_number_at", "search_frames", "x"),
)
ARGUMENTS = (
    *("video", "contains", "seconds", "frame_pixels", "start_seconds", "end_seconds", "num_frames", "text"),
    *("box", "unit", "columns"),
)
NAMES = (
    "clip.mp4",
    "clip.mp4",
    "clip.mp4",
    "",
    "../clip.mp4",
    "/etc/passwd",
    "clip.mp4\x00",
    "x" * 5000,
    ".",
    "a/b.mp4",
)


class Bodies(Surface):
    """Endpoints and the MCP server, in this process."""

    name: ClassVar[str] = "bodies"
    unit: ClassVar[str] = "bodies"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.replies: deque[httpx.Response] = deque()
        self.run(self._start())

    async def _start(self) -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._reply))
        self._openai = AsyncOpenAI(base_url=URL, api_key="EMPTY", max_retries=0, http_client=http)
        write_video(self.folder / "clip.mp4", num_frames=12, width=48, height=32)
        limits = CallLimits(max_frames=4, max_pixels=100_000)
        self._server = make_server(VideoTools(VideoFolder(self.folder), limits), searches=True)
        self._app = self._server.streamable_http_app(stateless_http=True, json_response=True)
        started, self._stopping = asyncio.Event(), asyncio.Event()
        self._serving = asyncio.create_task(self._serve(started))
        await started.wait()
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://127.0.0.1:1")

    def close(self) -> None:
        self.run(self._stop())
        super().close()

    async def _stop(self) -> None:
        await self._http.aclose()
        self._stopping.set()
        await self._serving
        await self._openai.close()

    async def _serve(self, started: asyncio.Event) -> None:
        """The server's life is one task's: it refuses to be ended by another."""
        async with self._app.router.lifespan_context(self._app):
            started.set()
            await self._stopping.wait()

    def make(self, random: Random) -> Any:
        roll = random.random()
        if roll < 0.1:
            given = {name: _argument(random, name) for name in random.sample(ARGUMENTS, random.randrange(1, 5))}
            return {"tool": random.choice(TOOLS), "arguments": given}
        if roll < 0.15:
            call = {"name": random.choice(TOOLS), "arguments": texts.value(random)}
            method = random.choice(("tools/call", "tools/list", "initialize", "ping", "x"))
            request = {"jsonrpc": "2.0", "id": texts.value(random, 2), "method": method, "params": call}
            return {"request": _body(random, request if random.random() < 0.8 else texts.value(random))}
        asked = random.choice(ASKED)
        return {"asked": asked, "model": random.choice((None, "m")), "replies": [_reply(random) for _ in range(4)]}

    def check(self, case: Any) -> int:
        if "tool" in case:
            self.run(self._call(case["tool"], case["arguments"]))
        elif "request" in case:
            self.run(self._post(bytes_of(case["request"])))
        else:
            self.run(self._ask(case))
        return 1

    # -------------------------------------------------------------------------------------------------------- endpoints

    def _reply(self, request: httpx.Request) -> httpx.Response:
        status, kind, headers, body = (
            self.replies.popleft() if self.replies else (200, "application/json", [], text_of(b"{}"))
        )
        given = [("content-type", kind), *((name, value.encode("latin-1")) for name, value in headers)]
        return httpx.Response(status, headers=[(name, value) for name, value in given], content=bytes_of(body))

    async def _ask(self, case: Any) -> None:
        before, retries.FIRST_BACKOFF_SECONDS = retries.FIRST_BACKOFF_SECONDS, 0.0
        self.replies = deque(case["replies"])
        config = JudgeConfig(base_url=URL, model=case["model"], max_attempts=3, deadline_seconds=20.0)
        judge = LLMJudge(config)
        endpoint = judge._endpoint
        endpoint._sessions[self._loop] = _session(self._openai, config)
        try:
            if case["asked"] == "verdict":
                assert isinstance(await judge.judge("Which?", "a dog", "a cat"), AnswerLabel)
            elif case["asked"] == "text":
                (text, _model) = await usable_reply(endpoint, [{"role": "user", "content": "?"}], _stopped)
                assert isinstance(text, str)
            elif case["asked"] == "models":
                assert all(isinstance(name, str) for name in await judge.served_models())
            else:
                assert isinstance(await endpoint.server_version(), str | None)
        except (EndpointError, JudgeError):
            pass
        finally:
            retries.FIRST_BACKOFF_SECONDS = before
            breaker = judge._breakers.pop(self._loop, None)
            if breaker is not None:
                await breaker.aclose()

    # ------------------------------------------------------------------------------------------------------- MCP server

    async def _call(self, tool: str, arguments: Any) -> None:
        try:
            result = await self._server.call_tool(tool, arguments)
        except ToolError as error:
            assert str(self.folder) not in str(error), "the place of the folder is told"
        else:
            assert str(self.folder) not in repr(result)[:10_000]

    async def _post(self, body: bytes) -> None:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        reply = await self._http.post("/mcp", content=body, headers=headers)
        assert reply.status_code < 500, reply.text
        assert str(self.folder) not in reply.text


def _session(client: AsyncOpenAI, config: JudgeConfig) -> Any:
    """The client's own session, made without connections of its own, which take longer than all else."""
    session = _Session(replace(config, base_url=None))
    session.places = [Place(URL, client)]
    return session


def _stopped(completion: Completion) -> str:
    return restore_stop(completion, ["</video_zoom>"])


def _reply(random: Random) -> list[Any]:
    headers = [random.choice(HEADERS)] if random.random() < 0.2 else []
    shape = random.choice((CHAT, CHAT, CHAT, MODELS, {"version": "0.24.0"}))
    return [random.choice(STATUSES), random.choice(TYPES), headers, _body(random, _spoilt(random, shape))]


def _spoilt(random: Random, value: Any) -> Any:
    """JSON with some of its values replaced, dropped or put elsewhere."""
    if random.random() < (0.02 if isinstance(value, dict | list) else 0.1):
        return random.choice((float("inf"), float("nan"), -1, 10**400, None, [], {}, texts.value(random)))
    if isinstance(value, dict):
        return {name: _spoilt(random, inner) for name, inner in value.items() if random.random() > 0.03}
    if isinstance(value, list):
        return [_spoilt(random, inner) for inner in value] * random.choice((1, 1, 1, 1, 0, 2))
    return texts.mutated(random, value) if isinstance(value, str) and random.random() < 0.3 else value


def _body(random: Random, value: Any) -> list[Any]:
    roll = random.random()
    if roll < 0.01:
        return text_of(random.choice((b"[", b'{"a":', b"9")), random.choice((900, 20_000)))
    body = json.dumps(value).encode()
    return text_of(damaged(body, damages(random)) if roll < 0.2 else body)


def _argument(random: Random, name: str) -> Any:
    if name == "video" and random.random() < 0.9:
        return random.choice(NAMES)
    if name == "unit" and random.random() < 0.7:
        return random.choice(("normalised", "pixels"))
    if name == "box" and random.random() < 0.7:
        edges = [texts.number(random, 50.0) for _ in range(random.choice((4, 4, 4, 3)))]
        return sorted(edges, key=str) if random.random() < 0.5 else [0, 0, random.random(), random.random()]
    if name == "seconds" and random.random() < 0.7:
        return [texts.number(random, 0.4) for _ in range(random.randrange(6))]
    return texts.number(random, 5.0) if random.random() < 0.7 else texts.value(random)
