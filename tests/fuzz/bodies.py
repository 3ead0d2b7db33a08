"""Surface `bodies`: replies of endpoints over HTTP."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import httpx2
from openai import AsyncOpenAI
from openai import _base_client as base_client

from tests.fuzz import texts
from tests.fuzz.damage import bytes_of, damaged, damages, text_of
from tests.fuzz.surface import Surface
from verl_video_tools.core.errors import EndpointError, JudgeError
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services import endpoint
from verl_video_tools.services.bounded_http import BoundedHttpClient
from verl_video_tools.services.chat import restore_stop
from verl_video_tools.services.endpoint import Completion
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


class Bodies(Surface):
    """Endpoints, in this process."""

    name: ClassVar[str] = "bodies"
    unit: ClassVar[str] = "bodies"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.replies: deque[list[Any]] = deque()
        http = BoundedHttpClient(transport=httpx2.MockTransport(self._reply))
        self._openai = AsyncOpenAI(base_url=URL, api_key="EMPTY", http_client=http)

    def close(self) -> None:
        self.run(self._openai.close())
        super().close()

    def make(self, random: Random) -> Any:
        asked = random.choice(ASKED)
        return {"asked": asked, "model": random.choice((None, "m")), "replies": [_reply(random) for _ in range(4)]}

    def check(self, case: Any) -> int:
        self.run(self._ask(case))
        return 1

    def _reply(self, request: httpx2.Request) -> httpx2.Response:
        status, kind, headers, body = (
            self.replies.popleft() if self.replies else (200, "application/json", [], text_of(b"{}"))
        )
        given = [("content-type", kind), *((name, value.encode("latin-1")) for name, value in headers)]
        content = httpx2.ByteStream(bytes_of(body))
        return httpx2.Response(status, headers=[(name, value) for name, value in given], stream=content)

    async def _ask(self, case: Any) -> None:
        before = base_client.MAX_RETRY_DELAY, endpoint.BROKEN_PAUSE_SECONDS
        base_client.MAX_RETRY_DELAY = endpoint.BROKEN_PAUSE_SECONDS = 0.0
        self.replies = deque(case["replies"])
        judge = LLMJudge(JudgeConfig(base_url=URL, model=case["model"], deadline_seconds=20.0))
        for address in judge._session().addresses:
            await address.client.close()
            address.client = self._openai
        try:
            if case["asked"] == "verdict":
                assert isinstance(await judge.judge("Which?", "a dog", "a cat"), AnswerLabel)
            elif case["asked"] == "text":
                text = await judge.complete({"messages": [{"role": "user", "content": "?"}]}, _stopped)
                assert text.encode().decode() == text
            elif case["asked"] == "models":
                assert all(name.encode().decode() == name for name in await judge.served_models())
            else:
                assert isinstance(await judge.server_version(), str | None)
        except (EndpointError, JudgeError) as error:
            str(error).encode()
        finally:
            base_client.MAX_RETRY_DELAY, endpoint.BROKEN_PAUSE_SECONDS = before


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
