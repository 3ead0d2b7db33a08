"""Episodes with a chat model behind a real HTTP server: what is sent, and what becomes of replies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import context_method
from tests.chat_server import chat_reply, pictures_of, scripted, texts_of
from tests.judge_server import MODEL, JudgeServer, Reply
from tests.videos.files import write_video
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import IMAGE_MARK, Method, Sample, StopReason
from verl_video_tools.methods import get_method
from verl_video_tools.methods.toolkit.contexts import DROPPED_MARK
from verl_video_tools.rollout.chat_policy import ChatPolicy, ChatRollout, PolicyConfig, Usage
from verl_video_tools.services.chat import restore_stop
from verl_video_tools.services.endpoint import Completion

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff", "context_method")

ZOOMER = get_method("videozoomer", initial_frames=4)
LONGVT = get_method("longvt", initial_frames=4, call_frames=8)
ZOOM = '<think>there</think><video_zoom>{"segment": [2.0, 4.0], "fps": 2}</video_zoom>'
CROP = (
    '<think>there</think>\n<tool_call>\n{"name": "crop_video", "arguments": {"start_time": 2.0, "end_time": 5.0}}\n'
    "</tool_call>"
)
ANSWER = "<think>so</think><answer>B</answer>"
STOP = "</video_zoom>"
QUESTION = "Which one?"


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer(reply=scripted({QUESTION: [ZOOM, ANSWER]})) as server:
        yield server


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    path = write_video(tmp_path_factory.mktemp("video") / "v.mp4", num_frames=100, fps=10)
    return Sample(QUESTION, "B", str(path), "mc")


async def rollout(
    server: JudgeServer, sample: Sample, method: Method = ZOOMER, options: dict[str, Any] | None = None, **how: Any
) -> ChatRollout:
    async with ChatPolicy(PolicyConfig(base_url=server.base_url, **(options or {}))) as policy:
        return await policy.rollout(method, sample, **how)


# ------------------------------------------------------------------------------------------------------- what is sent


@pytest.mark.parametrize(("method", "look"), [(ZOOMER, ZOOM), (LONGVT, CROP)])
async def test_pictures_are_those_of_the_record_in_reading_order(
    server: JudgeServer, sample: Sample, method: Method, look: str
) -> None:
    server.reply = scripted({QUESTION: [look, ANSWER]})
    trajectory = (await rollout(server, sample, method)).trajectory
    assert (trajectory.stop_reason, trajectory.answer, trajectory.flags) == (StopReason.ANSWER, "B", [])
    assert [turn.text for turn in trajectory.turns] == [look, ANSWER]
    (call,) = trajectory.executed_calls()
    first, second = (request["messages"] for request in server.requests)
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert second[:2] == first and second[2]["content"] == look
    for message, records in ((second[1], trajectory.initial_frames), (second[3], call.frames)):
        pictures = pictures_of(message)
        assert [picture.size for picture in pictures] == [(frame.width, frame.height) for frame in records]
        assert len(pictures) == texts_of(message).count("<image>") > 0
    assert texts_of(second[3]) == trajectory.turns[0].observation


@pytest.mark.parametrize(
    ("context", "shown"),
    [("append", [8, 8, 8]), ("last_evidence", [0, 0, 8]), ("initial_plus_last", [8, 0, 8])],
)
async def test_later_turns_see_what_the_context_policy_leaves(
    server: JudgeServer, sample: Sample, context: str, shown: list[int]
) -> None:
    looks = [
        f"<think>there</think><action>choose frames between {start} and {start + 20}</action>" for start in (20, 60)
    ]
    answer = "<think>so</think><action>output answer: B</action>"
    server.reply = scripted({QUESTION: [*looks, answer]})
    trajectory = (await rollout(server, sample, get_method(context_method.NAME, context=context))).trajectory
    assert (trajectory.answer, trajectory.flags) == ("B", [])
    messages = server.requests[-1]["messages"]
    assert [len(pictures_of(message)) for message in messages if message["role"] == "user"] == shown
    assert [message["content"] for message in messages if message["role"] == "assistant"] == looks
    for number, turn in ((3, trajectory.turns[0]), (5, trajectory.turns[1])):
        told = texts_of(messages[number]).replace(DROPPED_MARK, IMAGE_MARK)
        assert told == turn.observation  # labels and all
    assert texts_of(messages[1]).count(DROPPED_MARK) == 8 - shown[0]


async def test_png_is_lossless_and_jpeg_is_nearly(server: JudgeServer, sample: Sample) -> None:
    await rollout(server, sample)
    await rollout(server, sample, options={"jpeg_quality": 95})
    lossless, lossy = (pictures_of(server.requests[i]["messages"][1]) for i in (0, 2))
    assert {picture.format for picture in lossless} == {"PNG"} and {picture.format for picture in lossy} == {"JPEG"}
    for ours, theirs in zip(lossless, lossy, strict=True):
        assert np.abs(np.asarray(ours).astype(int) - np.asarray(theirs)).mean() < 5


async def test_sampling_is_what_was_asked_for(server: JudgeServer, sample: Sample) -> None:
    result = await rollout(server, sample, options={"temperature": 0.25}, seed=5)
    assert result.num_generated_tokens == 14
    assert result.usage == Usage(requests=2, prompt_tokens=2, completion_tokens=14)
    first, second = server.requests
    expected = {"model": MODEL, "temperature": 0.25, "stop": [STOP], "max_tokens": 4096}
    assert {name: first[name] for name in expected} == expected
    assert first["include_stop_str_in_output"] is True
    assert (first["seed"], second["seed"]) == (5, 6)
    server.reply = scripted({QUESTION: [CROP, ANSWER]})
    await rollout(server, sample, LONGVT)
    assert not {"stop", "include_stop_str_in_output", "seed", "max_tokens"} & set(server.requests[-1])


async def test_an_instruction_joins_the_system_prompt_and_prefix_turns_come_first(
    server: JudgeServer, sample: Sample
) -> None:
    server.reply = scripted({QUESTION: [ANSWER]}, num_given=1)
    result = await rollout(server, sample, prefix_turns=[ZOOM], instruction="Mind the gap.")
    assert [turn.text for turn in result.trajectory.turns] == [ZOOM, ANSWER]
    (request,) = server.requests
    assert request["messages"][0]["content"].endswith("\n\nMind the gap.")
    assert "<video_zoom>" in request["messages"][0]["content"]
    assert request["messages"][2] == {"role": "assistant", "content": ZOOM}
    assert len(pictures_of(request["messages"][3])) == len(result.trajectory.executed_calls()[0].frames) > 0


async def test_prefix_turns_that_end_the_rollout_are_told(server: JudgeServer, sample: Sample) -> None:
    trajectory = (await rollout(server, sample, prefix_turns=[ZOOM, ANSWER])).trajectory
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.ABORTED, ["aborted"])
    assert "do not replay: answer after 2 of 2" in str(trajectory.error)
    assert server.requests == []


# --------------------------------------------------------------------------------------------------------- stop strings


@pytest.mark.parametrize(
    "reply",
    [
        chat_reply(ZOOM),
        chat_reply(ZOOM, stop_reason=STOP),
        chat_reply(ZOOM.removesuffix(STOP)),
        chat_reply(ZOOM.removesuffix(STOP), stop_reason=STOP),
        chat_reply(ZOOM.removesuffix(STOP), matched_stop=STOP),
    ],
    ids=["kept", "kept and named", "left out", "left out and named", "SGLang"],
)
async def test_the_stop_string_ends_the_turn_whatever_the_server_does(
    server: JudgeServer, sample: Sample, reply: Reply
) -> None:
    server.reply = lambda request: reply if len(request["messages"]) == 2 else chat_reply(ANSWER, stop_reason=None)
    trajectory = (await rollout(server, sample)).trajectory
    assert [turn.text for turn in trajectory.turns] == [ZOOM, ANSWER]


@pytest.mark.parametrize("ending", [{"stop_reason": None}, {"matched_stop": 151645}], ids=["vLLM", "SGLang"])
async def test_a_tag_that_the_model_left_open_stays_open(
    server: JudgeServer, sample: Sample, ending: dict[str, Any]
) -> None:
    """As in training: the model ended its turn by itself, and a server that names stop strings names none."""
    server.reply = lambda request: chat_reply(ZOOM.removesuffix(STOP), **ending)
    trajectory = (await rollout(server, sample)).trajectory
    assert [turn.text for turn in trajectory.turns] == [ZOOM.removesuffix(STOP)]
    assert trajectory.stop_reason == StopReason.NO_ACTION and not trajectory.executed_calls()


def test_nothing_is_added_that_did_not_end_the_reply() -> None:
    assert restore_stop(Completion("so", "stop"), (STOP,)) == "so"
    assert restore_stop(Completion("<video_zoom>{", "length"), (STOP,)) == "<video_zoom>{"
    assert restore_stop(Completion("so", "stop", stop_reason="END"), (STOP, "END")) == "soEND"
    assert restore_stop(Completion("<video_zoom>", "stop"), ()) == "<video_zoom>"


async def test_a_server_that_refuses_the_field_of_vllm_is_asked_without_it(server: JudgeServer, sample: Sample) -> None:
    def strict(request: dict[str, Any]) -> Reply:
        if "include_stop_str_in_output" in request:
            error = {"error": {"message": "Unrecognized request argument: include_stop_str_in_output"}}
            return Reply(json.dumps(error).encode(), status=400)
        return chat_reply(ZOOM.removesuffix(STOP) if len(request["messages"]) == 2 else ANSWER)

    server.reply = strict
    trajectory = (await rollout(server, sample)).trajectory
    assert [turn.text for turn in trajectory.turns] == [ZOOM, ANSWER]
    assert len(server.requests) == 3


# ------------------------------------------------------------------------------------------------------------- failures


async def test_a_cut_turn_is_recorded_as_cut(server: JudgeServer, sample: Sample) -> None:
    server.reply = lambda request: chat_reply("<think>and so on and", finish_reason="length")
    trajectory = (await rollout(server, sample)).trajectory
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.RESPONSE_BUDGET, [])
    assert trajectory.turns[0].truncated


@pytest.mark.parametrize(
    "bad", [Reply(b"{}", status=500), Reply(b'{"choices": []}'), Reply(b"[1]"), Reply(None), Reply(b"<html>")]
)
async def test_a_bad_reply_is_tried_again(server: JudgeServer, sample: Sample, bad: Reply) -> None:
    left = [bad]
    good = server.reply
    server.reply = lambda request: left.pop() if left else good(request)
    trajectory = (await rollout(server, sample)).trajectory
    assert (trajectory.answer, trajectory.flags, len(server.requests)) == ("B", [], 3)


async def test_an_endpoint_that_fails_flags_the_rollout(server: JudgeServer, sample: Sample) -> None:
    server.reply = lambda request: Reply(b"{}", status=500)
    trajectory = (await rollout(server, sample, options={"deadline_seconds": 0.5})).trajectory
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.ABORTED, ["aborted"])
    assert "HTTP 500" in str(trajectory.error) and "within 0.5 s" in str(trajectory.error)
    # A server of its own: the last request to the first one may still be on its way.
    with JudgeServer(reply=lambda request: Reply(b'{"error": {"message": "too long"}}', status=400)) as refusing:
        trajectory = (await rollout(refusing, sample)).trajectory
        assert "too long" in str(trajectory.error) and len(refusing.requests) == 1


async def test_a_rollout_that_outgrows_the_context_is_cut_and_a_prompt_that_does_is_a_failure(
    server: JudgeServer, sample: Sample
) -> None:
    error = {"error": {"message": "This model's maximum context length is 99 tokens. However, you requested more."}}
    full = Reply(json.dumps(error).encode(), status=400)
    good = server.reply
    server.reply = lambda request: good(request) if len(request["messages"]) == 2 else full
    trajectory = (await rollout(server, sample)).trajectory
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.RESPONSE_BUDGET, [])
    assert [(turn.text, turn.truncated) for turn in trajectory.turns] == [(ZOOM, False), ("", True)]
    server.reply = lambda request: full
    trajectory = (await rollout(server, sample)).trajectory
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.ABORTED, ["aborted"])
    server.reply = lambda request: full if "max_tokens" in request else good(request)  # less is left than 4096
    trajectory = (await rollout(server, sample)).trajectory
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWER, "B")


async def test_a_video_that_cannot_be_read_costs_no_request(server: JudgeServer, tmp_path: Path) -> None:
    trajectory = (await rollout(server, Sample(QUESTION, "B", str(tmp_path / "gone.mp4"), "mc"))).trajectory
    assert trajectory.stop_reason is StopReason.VIDEO_ERROR and server.requests == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "needs a base_url"),
        ({"base_url": "localhost"}, "PolicyConfig.base_url must be an address that starts with http"),
        ({"base_url": "http://x", "temperature": -1.0}, "temperature must be at least 0"),
        ({"base_url": "http://x", "jpeg_quality": 100}, "jpeg_quality must be 1 to 95"),
    ],
)
def test_bad_options(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ChatPolicy(PolicyConfig(**fields))
