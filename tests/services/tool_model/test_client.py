"""A tool's model behind an endpoint: what it is sent, and which of its failures are those of one question."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.judge_server import MODEL, JudgeServer, Reply, completion
from verl_video_tools.core.errors import CallErrorCode, CallRejected, ToolModelError, UsageError
from verl_video_tools.core.types import Content, FrameRecord, ImagePart
from verl_video_tools.services.tool_model import ToolModelConfig
from verl_video_tools.services.tool_model.client import EndpointToolModel, connected

pytest.importorskip("openai", reason="the extra `judge` is not installed")

PICTURE = ImagePart(FrameRecord(3, 0.1, 28, 28), np.zeros((28, 28, 3), np.uint8))
CONTENT: Content = ("[0.1 s]", PICTURE, "\n\nWhat is it?")


def config(server: JudgeServer, **fields: Any) -> ToolModelConfig:
    return ToolModelConfig(base_url=server.base_url, deadline_seconds=2.0, **fields)


def said(text: str | None, finish_reason: str = "stop", usage: bool = True) -> Reply:
    body: dict[str, Any] = json.loads(completion(text).body or b"")
    body["choices"][0]["finish_reason"] = finish_reason
    if usage:
        body["usage"] = {"prompt_tokens": 40, "completion_tokens": 7}
    return Reply(json.dumps(body).encode())


async def test_frames_and_question_arrive_in_order() -> None:
    with JudgeServer(reply=lambda request: said(" a red kettle\n")) as server:
        async with EndpointToolModel(config(server, max_tokens=33)) as model:
            reply = await model.ask(CONTENT, 10.0)
    assert (reply.text, reply.model, reply.prompt_tokens, reply.completion_tokens) == ("a red kettle", MODEL, 40, 7)
    (request,) = server.requests
    system, user = request["messages"]
    assert [part["type"] for part in user["content"]] == ["text", "image_url", "text"]
    assert user["content"][2]["text"].endswith("What is it?") and system["role"] == "system"
    assert (request["max_tokens"], request["temperature"]) == (33, 0.0)


async def test_reasoning_is_left_out_and_a_cut_is_told() -> None:
    with JudgeServer(reply=lambda request: said("<think>hm</think>a kettle, which", "length", False)) as server:
        async with EndpointToolModel(config(server)) as model:
            reply = await model.ask(CONTENT, 10.0)
    assert (reply.text, reply.cut, reply.completion_tokens) == ("a kettle, which", True, 0)


def after_one_reply(then: Callable[[], Reply]) -> Callable[[dict[str, Any]], Reply]:
    num_asked = 0

    def reply(request: dict[str, Any]) -> Reply:
        nonlocal num_asked
        num_asked += 1
        return said("fine") if num_asked == 1 else then()

    return reply


OF_THE_QUESTION = [
    pytest.param(lambda: said(""), id="empty"),
    pytest.param(lambda: said("<think>and so on", "length"), id="cut in its reasoning"),
    pytest.param(lambda: Reply(b'{"error": {"message": "too many images"}}', 400), id="refused"),
]
OF_THE_ENDPOINT = [
    pytest.param(lambda: Reply(b'{"error": {"message": "no such key"}}', 401), id="key"),
    pytest.param(lambda: Reply(b'{"error": {"message": "no such model"}}', 404), id="model"),
    pytest.param(lambda: Reply(b"<html>busy</html>", content_type="text/html"), id="a proxy's page"),
    pytest.param(lambda: Reply(b"{}", 503), id="busy"),
    pytest.param(lambda: Reply(None), id="closed"),
]


@pytest.mark.parametrize("then", OF_THE_QUESTION)
async def test_a_reply_that_cannot_be_used_costs_its_question_alone(
    then: Callable[[], Reply], short_backoff: None
) -> None:
    with JudgeServer(reply=after_one_reply(then)) as server:
        async with EndpointToolModel(config(server, max_attempts=2)) as model:
            await model.ask(CONTENT, 10.0)
            with pytest.raises(CallRejected) as error:
                await model.ask(CONTENT, 10.0)
    assert error.value.code is CallErrorCode.NO_REPLY
    assert server.base_url not in str(error.value) and "127.0.0.1" not in error.value.message


@pytest.mark.slow
@pytest.mark.parametrize("then", OF_THE_ENDPOINT)
async def test_what_says_nothing_of_the_question_is_no_refusal(then: Callable[[], Reply], short_backoff: None) -> None:
    with JudgeServer(reply=after_one_reply(then)) as server:
        async with EndpointToolModel(config(server, max_attempts=2)) as model:
            await model.ask(CONTENT, 10.0)
            with pytest.raises(ToolModelError, match="no reply from the tool's model"):
                await model.ask(CONTENT, 10.0)


@pytest.mark.slow
@pytest.mark.parametrize("then", OF_THE_QUESTION + OF_THE_ENDPOINT)
async def test_an_endpoint_that_never_gave_a_reply_is_at_fault_itself(
    then: Callable[[], Reply], short_backoff: None
) -> None:
    """Else a server that takes no images would teach the policy that its questions are bad."""
    with JudgeServer(reply=lambda request: then()) as server:
        async with EndpointToolModel(config(server, max_attempts=2)) as model:
            with pytest.raises(ToolModelError):
                await model.ask(CONTENT, 10.0)


async def test_one_that_is_down_costs_one_deadline_once(short_backoff: None) -> None:
    with JudgeServer() as server:
        gone = ToolModelConfig(base_url=server.base_url, model=MODEL, deadline_seconds=0.5)
    async with EndpointToolModel(gone) as model:
        with pytest.raises(ToolModelError, match=r"within 0\.5 s"):
            await model.ask(CONTENT, 10.0)
        started = time.monotonic()
        for _ in range(20):
            with pytest.raises(ToolModelError, match="not asked: the tool's model counts as down"):
                await model.ask(CONTENT, 10.0)
        assert time.monotonic() - started < 5.0  # each alone would take half a second and more


async def test_the_tools_own_deadline_holds() -> None:
    with JudgeServer(reply=lambda request: said("late"), latency_seconds=1.5) as server:
        async with EndpointToolModel(config(server, model=MODEL)) as model:
            with pytest.raises(ToolModelError, match=r"within 0\.2 s"):
                await model.ask(CONTENT, 0.2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base_url": "h:80"}, "base_url"),
        ({"base_url": "http://h/v1", "calls_per_rollout": 0}, "calls_per_rollout must be at least 1"),
        ({"base_url": "http://h/v1", "max_tokens": 0}, "max_tokens"),
        ({"base_url": "http://h/v1", "tokens_per_rollout": 0}, "tokens_per_rollout"),
        ({"base_url": "http://h/v1", "color": 1}, "no field 'color'"),
        ({"calls_per_rollout": 2}, "base_url must be the address"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ToolModelConfig.from_fields(fields)


def test_a_process_has_one_client_per_config() -> None:
    first = ToolModelConfig.from_fields({"base_url": "http://h/v1"})
    assert connected(first) is connected(ToolModelConfig.from_fields({"base_url": "http://h/v1"}))
    assert connected(first) is not connected(ToolModelConfig.from_fields({"base_url": "http://g/v1"}))
