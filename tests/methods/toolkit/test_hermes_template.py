"""The chat template for servers with native tools renders what the loop trains on, token text for token text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from examples.tiny_models.tiny_model import chat_template
from tests.released_models import vocabulary_dir
from tests.verl_plugin import harness
from verl_video_tools.config import config_path
from verl_video_tools.core.errors import CallError, UsageError
from verl_video_tools.core.types import (
    CallRecord,
    FrameRecord,
    ImagePart,
    Message,
    Sample,
    ToolOutcome,
    VideoInfo,
    content_text,
)
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.toolkit.grammar import section_of_template, tools_section
from verl_video_tools.rollout.tokens import to_chat_message

METHOD = LongVT()
INFO = VideoInfo(100.0, 3000, 30.0, 64, 64)
SAMPLE = Sample("What?", "x", "v.mp4", "open")
CALLS: list[dict[str, Any]] = [
    {"name": "crop_video", "arguments": {"start_time": 1.0, "end_time": 2.5}},
    {"name": "crop_video", "arguments": {"start_time": 3, "end_time": 4}},
]
PICTURE = ImagePart(FrameRecord(0, 0.0, 56, 56))
OUTCOMES = [
    ToolOutcome(
        CallRecord("crop_video", {}, ok=True),
        (ImagePart(FrameRecord(30, 1.0, 56, 56)), ImagePart(FrameRecord(75, 2.5, 56, 56))),
    ),
    ToolOutcome(CallRecord("crop_video", {}, ok=False, error=CallError("out_of_range", "no"))),
]


@pytest.fixture
def processor(vocabulary: None) -> Any:
    return harness.processor()


def stock_text(processor: Any, messages: list[Message]) -> str:
    """As the loop renders messages, by the model's own template, which knows no tools."""
    chat = [to_chat_message(message) for message in messages]
    return processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)


def native_text(
    processor: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, template: str | None = None
) -> str:
    """By the template for servers with native tools, or another."""
    template = template or config_path("hermes-template").read_text(encoding="utf-8")
    return processor.apply_chat_template(
        messages, tools=tools, chat_template=template, add_generation_prompt=True, tokenize=False
    )


def dialogue(as_text: bool, method: LongVT = METHOD) -> tuple[list[Message], list[dict[str, Any]]]:
    """A rollout as the loop renders it, and with native calls and replies, as a client sends it beside `tools`.

    Args:
        as_text: whether the arguments of the native calls are JSON in a string.
    """
    system, user = method.prompt(SAMPLE, INFO, [PICTURE])
    calls = "".join(f"\n<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in CALLS)
    replies = [("1.0s ", PICTURE, "\n2.5s ", PICTURE), ("Error: out_of_range: no",)]
    ours = [
        system,
        user,
        Message("assistant", (f"<think>there</think>{calls}",)),
        Message("user", method.observe(OUTCOMES, turns_left=3)),
    ]
    bare = content_text(system.content).removesuffix(
        f"\n\n{tools_section(method.tool_schemas(), method.tools_section)}"
    )
    assert bare != content_text(system.content), "the section of tools ends the system prompt"
    native_calls = [
        {
            "type": "function",
            "function": {**call, "arguments": json.dumps(call["arguments"]) if as_text else call["arguments"]},
        }
        for call in CALLS
    ]
    native = [
        {"role": "system", "content": bare},
        to_chat_message(user),
        {"role": "assistant", "content": "<think>there</think>", "tool_calls": native_calls},
        *({**to_chat_message(Message("user", reply)), "role": "tool"} for reply in replies),
    ]
    return ours, native


@pytest.mark.parametrize("as_text", [False, True])
def test_a_rollout_with_native_calls_is_the_same_text(processor: Any, as_text: bool) -> None:
    ours, native = dialogue(as_text)
    assert native_text(processor, native, METHOD.tool_schemas()) == stock_text(processor, ours)


@pytest.mark.parametrize("as_text", [False, True])
def test_qwen3_vl_renders_the_same_text(as_text: bool) -> None:
    """By its own template, whose words the prompt takes for its list of tools."""
    vocabulary_dir("qwen3_vl")
    with harness.using_vocabulary("released"):
        processor = harness.processor("qwen3_vl")
    section = section_of_template(processor.chat_template)
    assert section is not None
    ours, native = dialogue(as_text, LongVT(tools_section=section))
    text = native_text(processor, native, METHOD.tool_schemas(), processor.chat_template)
    assert text == stock_text(processor, ours)
    assert text != stock_text(processor, dialogue(as_text)[0])


def test_without_tools_it_is_the_models_own_template(processor: Any) -> None:
    messages = [Message("system", ("Be brief.",)), Message("user", (PICTURE, "What?"))]
    chat = [to_chat_message(message) for message in messages]
    assert native_text(processor, chat, None) == stock_text(processor, messages)


def test_golden_text(processor: Any) -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    text = native_text(processor, [{"role": "user", "content": "What?"}, {"role": "tool", "content": "no"}], tools)
    assert text == (
        "<|im_start|>system\n# Tools\n\nThese tools can be called:\n<tools>\n"
        '{"type": "function", "function": {"name": "look"}}\n</tools>\n\n'
        "A call is a JSON object with name and arguments between <tool_call> and </tool_call>:\n"
        '<tool_call>\n{"name": "NAME", "arguments": {"PARAMETER": VALUE}}\n</tool_call>\n'
        "What it returns comes between <tool_response> and </tool_response>; never write that yourself.<|im_end|>\n"
        "<|im_start|>user\nWhat?<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nno\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


# --------------------------------------------------------------------------- the list of tools, as a model knows it

OTHER_WORDS = (
    config_path("hermes-template")
    .read_text(encoding="utf-8")
    .replace("These tools can be called:", "Functions of yours:")
    .replace("A call is a JSON object", "Call by a JSON object")
)


def test_the_section_of_a_template_is_its_own_rendering(processor: Any) -> None:
    """Prompts hold it as text, and are the text that the template makes of `tools`."""
    section = section_of_template(OTHER_WORDS)
    method = LongVT(tools_section=section)
    system, user = method.prompt(SAMPLE, INFO, [PICTURE])
    ours = stock_text(processor, [system, user])
    assert "Functions of yours:" in ours and ours != stock_text(processor, METHOD.prompt(SAMPLE, INFO, [PICTURE]))
    bare = content_text(system.content).removesuffix("\n\n" + tools_section(method.tool_schemas(), section))
    native = [{"role": "system", "content": bare}, to_chat_message(user)]
    rendered = processor.apply_chat_template(
        native, tools=method.tool_schemas(), chat_template=OTHER_WORDS, add_generation_prompt=True, tokenize=False
    )
    assert rendered == ours


def test_our_own_template_has_our_own_section() -> None:
    section = section_of_template(config_path("hermes-template").read_text(encoding="utf-8"))
    assert tools_section(METHOD.tool_schemas(), section) == tools_section(METHOD.tool_schemas())


@pytest.mark.parametrize(
    "template",
    [
        chat_template(),
        OTHER_WORDS.replace('"arguments"', "<arguments>"),
        OTHER_WORDS.replace("tool_call>", "function_call>"),
        OTHER_WORDS.replace("'\\n\\n' + tools_section()", "tools_section()"),
        "{{ raise_exception('no system message') }}",
        "{% if tools %}{{ raise_exception('no tools') }}{% endif %}{{ messages[0]['content'] }}",
        "{{ messages[0]['content'] + 1 }}",
        "{{ messages",
    ],
    ids=[
        "renders no tools",
        "calls of another form",
        "calls between other tags",
        "another place",
        "refuses system messages",
        "refuses tools",
        "fails",
        "is malformed",
    ],
)
def test_a_template_without_such_a_section(template: str) -> None:
    assert section_of_template(template) is None


@pytest.mark.parametrize("text", ["Call what you like.", ""])
def test_a_section_without_its_tools_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="tools_section"):
        LongVT(tools_section=text)
