"""The gate for everything that comes in: whatever the bytes, what is read has UTF-8."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("openai", reason="the extra `judge` is not installed")

from verl_video_tools.services.attempts import BrokenReply
from verl_video_tools.services.bounded_http import readable
from verl_video_tools.services.endpoint import read_completion

TEXT = st.text(st.characters(codec=None)) | st.text()  # halves of surrogate pairs, too
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for inner in value.values() for text in strings(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner)]
    return [value] if isinstance(value, str) else []


@given(JSON)
def test_json_is_read_with_all_that_has_utf8(value: Any) -> None:
    kind, content = readable(json.dumps(value).encode())
    assert kind == "application/json"
    for was, read in zip(strings(value), strings(json.loads(content)), strict=False):
        assert read.encode().decode() == read
        assert len(strings(value)) != len(strings(json.loads(content))) or read == was.encode(errors="replace").decode()


@given(st.binary())
def test_any_bytes_are_read(body: bytes) -> None:
    kind, content = readable(body)
    text = content.decode()
    assert kind == "application/json" or text == body.decode("utf-8", "replace")


def test_nested_too_deep_is_text() -> None:
    assert readable(b"[" * 100_000)[0].startswith("text/plain")


MESSAGES = st.fixed_dictionaries({"content": TEXT}) | st.fixed_dictionaries({"content": JSON, "reasoning": JSON}) | JSON


@given(st.fixed_dictionaries({"message": MESSAGES}, optional={"stop_reason": JSON, "finish_reason": JSON}))
def test_a_completion_is_text_or_none_at_all(choice: Any) -> None:
    body = json.dumps({"choices": [choice], "usage": choice.get("stop_reason")}).encode()
    try:
        completion = read_completion(json.loads(readable(body)[1]))
    except BrokenReply as error:
        str(error).encode()
        return
    for text in (completion.text, completion.reasoning, completion.stop_reason, completion.finish_reason):
        (text or "").encode()
    assert completion.num_tokens >= 0 and completion.num_prompt_tokens >= 0
