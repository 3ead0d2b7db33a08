"""A tool's model behind an endpoint: what it is sent, and which of its failures are those of one question."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.judge_server import MODEL, JudgeServer, Reply, completion
from verl_video_tools.core.errors import CallErrorCode, CallRejected, ToolModelError, UsageError
from verl_video_tools.core.types import Content, FrameRecord, ImagePart
from verl_video_tools.services.tool_model import EndpointToolModel, ToolModelConfig, connected

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


async def test_a_reply_with_half_a_surrogate_pair_is_text_that_a_tokenizer_and_a_record_take() -> None:
    with JudgeServer(reply=lambda request: said("a kettle \ud800")) as server:
        async with EndpointToolModel(config(server)) as model:
            reply = await model.ask(CONTENT, 10.0)
    assert reply.text.encode() == b"a kettle ?"


async def test_an_odd_header_of_a_busy_server_ends_no_episode(short_backoff: None) -> None:
    headers = (("Retry-After", "Fri, 99 Dec 99999999999 23:59:59 GMT"),)
    left = [Reply(b"busy", 503, headers=headers)]
    with JudgeServer(reply=lambda request: left.pop() if left else said("a kettle")) as server:
        async with EndpointToolModel(config(server)) as model:
            assert (await model.ask(CONTENT, 10.0)).text == "a kettle"


def after_one_reply(then: Callable[[], Reply]) -> Callable[[dict[str, Any]], Reply]:
    num_asked = 0

    def reply(request: dict[str, Any]) -> Reply:
        nonlocal num_asked
        num_asked += 1
        return said("fine") if num_asked == 1 else then()

    return reply


OF_THE_QUESTION = {
    "empty": lambda: said(""),
    "cut in its reasoning": lambda: said("<think>and so on", "length"),
    "refused": lambda: Reply(b'{"error": {"message": "too many images"}}', 400),
}
OF_THE_ENDPOINT = {
    "key": lambda: Reply(b'{"error": {"message": "no such key"}}', 401),
    "model": lambda: Reply(b'{"error": {"message": "no such model"}}', 404),
    "a proxy's page": lambda: Reply(b"<html>busy</html>", content_type="text/html"),
    "busy": lambda: Reply(b"{}", 503),
    "closed": lambda: Reply(None),
}
Replies = dict[str, Callable[[], Reply]]


async def failures(replies: Replies, *, after_one: bool) -> dict[str, BaseException | None]:
    """What is raised at each of these replies, which come at once or after one that can be used. All at a time: some
    are asked for until a deadline."""

    async def failure(then: Callable[[], Reply]) -> BaseException | None:
        with JudgeServer(reply=after_one_reply(then) if after_one else lambda request: then()) as server:
            async with EndpointToolModel(config(server)) as model:
                if after_one:
                    await model.ask(CONTENT, 10.0)
                try:
                    await model.ask(CONTENT, 10.0)
                except (CallRejected, ToolModelError) as error:
                    return error
        return None

    return dict(zip(replies, await asyncio.gather(*map(failure, replies.values())), strict=True))


async def test_a_reply_that_cannot_be_used_costs_its_question_alone(short_backoff: None) -> None:
    for name, error in (await failures(OF_THE_QUESTION, after_one=True)).items():
        assert isinstance(error, CallRejected) and error.code is CallErrorCode.NO_REPLY, name
        assert "127.0.0.1" not in str(error) and "127.0.0.1" not in error.message, name


@pytest.mark.slow
async def test_what_says_nothing_of_the_question_is_no_refusal(short_backoff: None) -> None:
    for name, error in (await failures(OF_THE_ENDPOINT, after_one=True)).items():
        assert isinstance(error, ToolModelError), name
        assert "no reply from the tool's model" in str(error), name


@pytest.mark.slow
async def test_an_endpoint_that_never_gave_a_reply_is_at_fault_itself(short_backoff: None) -> None:
    """Else a server that takes no images would teach the policy that its questions are bad."""
    found = await failures(OF_THE_QUESTION | OF_THE_ENDPOINT, after_one=False)
    assert {name: type(error) for name, error in found.items()} == dict.fromkeys(found, ToolModelError)


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
