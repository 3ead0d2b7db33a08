"""Episodes with a model that reasons before it speaks, in the shapes in which servers send that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chat_server import REASONING_SHAPES, chat_reply, scripted, texts_of, thinking
from tests.judge_server import JudgeServer, Reply
from tests.videos.files import write_video
from verl_video_tools.core.types import Method, Sample, StopReason, Trajectory
from verl_video_tools.methods import get_method
from verl_video_tools.rollout import opened_reasoning
from verl_video_tools.rollout.chat_policy import ChatPolicy, PolicyConfig, Usage
from verl_video_tools.services.attempts import BrokenReply
from verl_video_tools.services.endpoint import read_completion

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

QUESTION = "Which one?"
THINKER = get_method("framethinker")
SCRIPTS: dict[str, tuple[Method, list[str]]] = {
    "framethinker": (
        THINKER,
        [
            "<think>there, 20 and 60</think><action>choose frames between 20 and 60</action>",
            "<think>so</think><action>output answer: B</action>",
        ],
    ),
    "videozoomer": (
        get_method("videozoomer", initial_frames=4),
        [
            '<think>there</think><video_zoom>{"segment": [2.0, 4.0], "fps": 2}</video_zoom>',
            "<think>so</think><answer>B</answer>",
        ],
    ),
    "longvt": (
        get_method("longvt", initial_frames=4, call_frames=4),
        [
            '<think>there</think>\n<tool_call>\n{"name": "crop_video", "arguments": {"start_time": 2, "end_time": 5}}\n'
            "</tool_call>",
            "<think>so</think>\n<answer>B</answer>",
        ],
    ),
    "framemind": (
        get_method("framemind", low=(4, 56), high=(4, 56)),
        [
            "<think>there</think><tool_call>FrameAt(2.0)</tool_call><turn_sum>what</turn_sum>",
            "<think>so</think><answer>B</answer>",
        ],
    ),
    "videobrain": (
        get_method("videobrain", initial_frames=4),
        [
            '<thinking>there</thinking><tool_call>{"name": "uniform_sample", "arguments": {"start_frame": 2, '
            '"end_frame": 50}}</tool_call>',
            "<thinking>so</thinking><answer>B</answer>",
        ],
    ),
    "direct": (get_method("direct", initial_frames=4), ["<answer>B</answer>"]),
}
PAIRS = [
    (name, shape)
    for number, name in enumerate(SCRIPTS)
    for shape in (
        REASONING_SHAPES
        if name in ("framethinker", "videozoomer")
        else [REASONING_SHAPES[number % len(REASONING_SHAPES)]]
    )
]
"""Every shape with a method that has stop strings and with one that has none, and every method with a shape."""
NAMES_CALLS = (
    'I could write <tool_call>{"name": "crop_video", "arguments": {}}</tool_call>, <action>output answer: A</action> '
    'or <video_zoom>{"segment": [0.0, 1.0], "fps": 1}</video_zoom>, or <answer>A</answer>.'
)


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        yield server


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    path = write_video(tmp_path_factory.mktemp("video") / "v.mp4", num_frames=100, fps=10)
    return Sample(QUESTION, "B", str(path), "mc", extra_info={"classification": "f"})


async def rollouts(server: JudgeServer, sample: Sample, method: Method, number: int = 1) -> list[Trajectory]:
    async with ChatPolicy(PolicyConfig(base_url=server.base_url)) as policy:
        return [(await policy.rollout(method, sample)).trajectory for _ in range(number)]


def record_of(trajectory: Trajectory, *, reasons: bool) -> dict[str, Any]:
    """All that does not depend on the clock, the cache and the reasoning."""
    record = trajectory.to_dict()
    del record["cache"]
    for turn in record["turns"]:
        assert (turn.pop("reasoning") == NAMES_CALLS) == reasons
        for call in turn["calls"]:
            del call["latency_ms"]
    return record


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), PAIRS)
async def test_a_rollout_is_that_of_a_model_without_reasoning(
    server: JudgeServer, sample: Sample, name: str, shape: str
) -> None:
    method, turns = SCRIPTS[name]
    server.reply = scripted({QUESTION: turns})
    (plain,) = await rollouts(server, sample, method)
    asked = [request["messages"] for request in server.requests]
    assert (plain.answer, len(plain.executed_calls()), plain.flags) == ("B", len(turns) - 1, [])

    server.requests.clear()
    server.reply = thinking(server.reply, shape, NAMES_CALLS)
    for trajectory in await rollouts(server, sample, method, number=2):
        assert record_of(trajectory, reasons=True) == record_of(plain, reasons=False)
        assert await method.score(trajectory, sample) == await method.score(plain, sample)
    assert [
        messages for messages in [request["messages"] for request in server.requests] if messages not in asked
    ] == []
    # Reasoning that names a stop string is asked for once more, and from then on without it.
    assert len(server.requests) == 2 * len(turns) + (name == "videozoomer")


async def test_a_reply_that_was_asked_for_once_more_costs_no_rollout_more(server: JudgeServer, sample: Sample) -> None:
    """Which rollout meets it first is chance: what evaluations tell of cost must not depend on that."""
    method, turns = SCRIPTS["videozoomer"]
    server.reply = thinking(scripted({QUESTION: turns}), "a field", NAMES_CALLS)
    async with ChatPolicy(PolicyConfig(base_url=server.base_url)) as policy:
        first, second = [await policy.rollout(method, sample) for _ in range(2)]
    assert len(server.requests) == 2 * len(turns) + 1
    assert first.usage == second.usage == Usage(len(turns), len(turns), 7 * len(turns))
    assert first.num_generated_tokens == second.num_generated_tokens + 7, "what was generated is told in whole"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), [pair for pair in PAIRS if pair[0] != "direct"])
async def test_a_turn_without_a_thought_takes_the_reasoning_for_it(
    server: JudgeServer, sample: Sample, name: str, shape: str
) -> None:
    method, turns = SCRIPTS[name]
    tag = "thinking" if name == "videobrain" else "think"
    server.reply = thinking(
        scripted({QUESTION: [turn.partition(f"</{tag}>")[2] for turn in turns]}), shape, f"{NAMES_CALLS} From 20 to 60"
    )
    (trajectory,) = await rollouts(server, sample, method)
    assert (trajectory.answer, len(trajectory.executed_calls()), len(trajectory.calls())) == ("B", 1, 1)
    assert all(turn.well_formed and turn.reasoning is None for turn in trajectory.turns)
    assert all("I could write tool_call{" in str(turn.thought) for turn in trajectory.turns)
    assert (await method.score(trajectory, sample))["accuracy"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), PAIRS)
async def test_reasoning_that_was_cut_is_a_cut_turn(server: JudgeServer, sample: Sample, name: str, shape: str) -> None:
    """Whatever it names; it is nobody's failure but the model's, and no reason to ask again."""
    method, turns = SCRIPTS[name]
    speaks = scripted({QUESTION: turns})
    whole = thinking(speaks, shape, "so")
    server.reply = whole
    async with ChatPolicy(PolicyConfig(base_url=server.base_url)) as policy:
        await policy.rollout(method, sample)  # the template shows itself by the first reply that is not cut
        server.requests.clear()
        cut = NAMES_CALLS
        if shape == "in the text":
            server.reply = lambda request: chat_reply(f"<think>\n{cut}", "length")
        elif shape == "opened by the template":
            server.reply = lambda request: chat_reply(cut, "length")
        else:
            field = "reasoning" if shape == "a field" else "reasoning_content"
            message = {"role": "assistant", "content": None, field: cut}
            server.reply = lambda request: chat_reply("", "length", message=message)
        trajectory = (await policy.rollout(method, sample)).trajectory
    (turn,) = trajectory.turns
    assert (trajectory.stop_reason, trajectory.answer, trajectory.flags) == (StopReason.RESPONSE_BUDGET, None, [])
    assert (turn.text, turn.truncated, turn.calls, turn.reasoning) == ("", True, [], cut)
    assert len([request for request in server.requests if not is_aside(request)]) == 1


APPLE = chat_reply("A fruit. An apple.\n</think>\n\nApple")
THOUGHT = "Let me look. The answer is A."
NO_REPLY = Reply(b'{"error": {"message": "pictures only"}}', status=400)


def is_aside(request: dict[str, Any]) -> bool:
    """Whether it asks for the form of replies, and nothing about the video."""
    return texts_of(request["messages"][-1]) == opened_reasoning.QUESTION


@pytest.mark.parametrize(
    ("aside", "before", "said"),
    [
        pytest.param(APPLE, [], "", id="the template opens a reasoning, and no other reply has shown it"),
        pytest.param(APPLE, ["so</think><answer>B</answer>"], "", id="one has"),
        pytest.param(chat_reply("Apple"), [], THOUGHT, id="a model that does not reason"),
        pytest.param(
            chat_reply("Apple"), ["so</think><answer>B</answer>"], THOUGHT, id="one that has closed a thought unopened"
        ),
        pytest.param(chat_reply("<think>A fruit.", "length"), [], THOUGHT, id="one that opens its reasoning itself"),
        pytest.param(NO_REPLY, [], THOUGHT, id="an endpoint that refuses the question"),
        pytest.param(NO_REPLY, ["so</think><answer>B</answer>"], "", id="and whose replies show it"),
        pytest.param(
            chat_reply("A fruit", "length"), ["so</think><answer>B</answer>"], "", id="a question cut as well"
        ),
    ],
)
async def test_what_a_cut_turn_is_does_not_depend_on_which_turns_came_before(
    server: JudgeServer, sample: Sample, aside: Reply, before: list[str], said: str
) -> None:
    """Of rollouts side by side, or of a run that was started again, that is chance."""
    left = [chat_reply(text) for text in before] + [chat_reply(THOUGHT, "length")] * 2
    server.reply = lambda request: aside if is_aside(request) else left.pop(0)
    method, _ = SCRIPTS["direct"]
    for trajectory in (await rollouts(server, sample, method, number=len(left)))[-2:]:
        (turn,) = trajectory.turns
        assert (turn.text, turn.reasoning) == (said, None if said else THOUGHT)
        assert trajectory.answer is None and trajectory.flags == []  # `direct` takes no answer that has no end
    assert sum(map(is_aside, server.requests)) == 1, "asked once for all cut turns"


async def test_the_form_of_replies_is_asked_for_only_where_a_turn_does_not_show_it(
    server: JudgeServer, sample: Sample
) -> None:
    """And costs no rollout anything; with room for a reasoning, of which a short context leaves less."""
    method, _ = SCRIPTS["direct"]
    server.reply = lambda request: chat_reply("<answer>B</answer>")
    await rollouts(server, sample, method)
    assert not any(map(is_aside, server.requests))

    error = {"error": {"message": "This model's maximum context length is 99 tokens. However, you requested more."}}
    full, cut = Reply(json.dumps(error).encode(), status=400), chat_reply(THOUGHT, "length")
    server.reply = lambda request: (full if "max_tokens" in request else APPLE) if is_aside(request) else cut
    async with ChatPolicy(PolicyConfig(base_url=server.base_url)) as policy:
        found = await policy.rollout(method, sample)
    assert found.trajectory.turns[0].text == "" and found.usage == Usage(1, 1, 7)


async def test_a_request_for_frames_ends_the_turn_also_where_the_server_does_not_stop(
    server: JudgeServer, sample: Sample
) -> None:
    method, (zoom, answer) = SCRIPTS["videozoomer"]
    server.reply = thinking(
        scripted({QUESTION: [f"{zoom}\nmade-up frames <answer>A</answer>", answer]}), "a field", NAMES_CALLS
    )
    (trajectory,) = await rollouts(server, sample, method)
    assert [turn.text for turn in trajectory.turns] == [zoom, answer]
    assert ["stop" in request for request in server.requests] == [True, False, False]


@pytest.mark.parametrize(
    "text", ["<think>a</think><action>output answer: B</action>", "  <think>a\n</think>\nso <action>x</action>", "B"]
)
async def test_a_model_without_reasoning_is_recorded_as_it_wrote(
    server: JudgeServer, sample: Sample, text: str
) -> None:
    server.reply = lambda request: chat_reply(text)
    (trajectory,) = await rollouts(server, sample, THINKER)
    assert (trajectory.turns[0].text, trajectory.turns[0].reasoning) == (text, None)


@pytest.mark.parametrize("message", [{"content": None}, {"content": None, "reasoning": " "}, {"content": 3}, "B", None])
def test_a_reply_without_words_or_reasoning_is_none(message: Any) -> None:
    with pytest.raises(BrokenReply, match="is no chat completion"):
        read_completion({"choices": [{"message": message}]})


@pytest.mark.parametrize("content", [None, "", "<think>There.</think>"])
def test_calls_that_the_server_took_out_of_the_text_are_named(content: str | None) -> None:
    message = {"content": content, "tool_calls": [{"function": {"name": "crop_video", "arguments": "{}"}}]}
    with pytest.raises(BrokenReply, match="start it without a parser of tool calls"):
        read_completion({"choices": [{"message": message}]})
    assert read_completion({"choices": [{"message": {"content": "B", "tool_calls": []}}]}).text == "B"


@pytest.mark.parametrize("count", [float("inf"), float("nan"), -3, "9", None, [7]])
def test_a_reply_that_counts_no_tokens_is_read(count: Any) -> None:
    """Python's JSON knows Infinity, which is no whole number."""
    choice = {"message": {"content": "B"}, "finish_reason": ["stop"]}
    read = read_completion({"choices": [choice], "usage": {"completion_tokens": count, "prompt_tokens": count}})
    assert (read.text, read.num_tokens, read.num_prompt_tokens, read.finish_reason) == ("B", 0, 0, None)
