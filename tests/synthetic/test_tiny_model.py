"""Tokenizer, chat template and processor of the tiny model."""

from __future__ import annotations

import functools
import itertools
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers import PreTrainedTokenizerFast

from examples.tiny_models.tiny_model import (
    ARCHITECTURES,
    SPECIAL_TOKENS,
    Architecture,
    TinyProcessor,
    chat_template,
    make_model,
    make_processor,
    make_tokenizer,
    trained_tokenizer,
)

TOKENIZER = make_tokenizer()

PLAIN_TEXT = st.text().filter(lambda text: "<|" not in text)
"""Any text, except what could spell a special token."""


@pytest.fixture(scope="module")
def processor() -> TinyProcessor:
    return make_processor(TOKENIZER)


@given(PLAIN_TEXT)
def test_any_text_survives_encoding(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.integers(0, 99_999), st.sampled_from(["", " ", "frame ", "between ", "time 0:", "(", "\n"]))
def test_a_number_is_the_same_digits_wherever_it_stands(number: int, before: str) -> None:
    tokens = TOKENIZER.tokenize(f"{before}{number}")
    assert tokens[len(tokens) - len(str(number)) :] == list(str(number))


@given(PLAIN_TEXT, PLAIN_TEXT)
def test_tokens_do_not_change_where_text_is_joined_at_pictures_and_turn_ends(left: str, right: str) -> None:
    for joint in ("<|vision_start|><|image_pad|><|vision_end|>", "<|im_end|>"):
        parts = [TOKENIZER.encode(part) for part in (left, joint, right)]
        assert TOKENIZER.encode(left + joint + right) == functools.reduce(operator.iadd, parts, [])


@given(PLAIN_TEXT, PLAIN_TEXT)
def test_tokens_do_not_change_where_lines_are_joined(left: str, right: str) -> None:
    assert TOKENIZER.encode(f"{left}\n{right}") == TOKENIZER.encode(f"{left}\n") + TOKENIZER.encode(right)


def test_special_tokens_are_single_and_marked() -> None:
    for token in SPECIAL_TOKENS:
        assert len(TOKENIZER.encode(token)) == 1
        assert TOKENIZER.decode(TOKENIZER.encode(token), skip_special_tokens=True) == ""
    assert TOKENIZER.eos_token == "<|im_end|>"
    assert TOKENIZER.pad_token == "<|endoftext|>"


def test_tool_call_tags_are_single_tokens_that_decoding_keeps() -> None:
    ids = TOKENIZER.encode("<tool_call></tool_call>")
    assert len(ids) == 2
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == "<tool_call></tool_call>"


def test_what_the_demonstration_writes_takes_few_tokens() -> None:
    turn = "<think>between 150 and 190</think><action>choose frames between 150 and 190</action>"
    assert len(TOKENIZER.encode(turn)) <= 36
    assert len(TOKENIZER.encode("B. green square\n")) == 5
    assert len(TOKENIZER.encode("\nframe 163: ")) == 8


def test_making_the_tokenizer_again_gives_the_same_one() -> None:
    trained = trained_tokenizer()
    trained_tokenizer.cache_clear()
    assert trained_tokenizer() == trained
    assert make_tokenizer().get_vocab() == TOKENIZER.get_vocab()


MESSAGES = [
    {"role": "system", "content": "Look."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What?\nframe 0: "},
            {"type": "image", "image": None},
            {"type": "text", "text": "\nframe 12: "},
            {"type": "image"},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "red circle"}]},
    {"role": "user", "content": [{"type": "video"}]},
]
PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"
RENDERED = (
    "<|im_start|>system\nLook.<|im_end|>\n"
    f"<|im_start|>user\nWhat?\nframe 0: {PICTURE}\nframe 12: {PICTURE}<|im_end|>\n"
    "<|im_start|>assistant\nred circle<|im_end|>\n"
    "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|><|im_end|>\n"
)


def test_chat_template_golden(processor: TinyProcessor) -> None:
    for renderer in (TOKENIZER, processor):
        assert renderer.apply_chat_template(MESSAGES, tokenize=False) == RENDERED
        prompted = renderer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
        assert prompted == RENDERED + "<|im_start|>assistant\n"
    assert processor.chat_template == TOKENIZER.chat_template == chat_template()


def test_chat_template_adds_no_system_message() -> None:
    text = TOKENIZER.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert text == "<|im_start|>user\nHi<|im_end|>\n"


def test_template_is_built_turn_by_turn() -> None:
    """Rendering a longer conversation only appends: multi-turn rollouts rely on it."""
    texts = [TOKENIZER.apply_chat_template(MESSAGES[:count], tokenize=False) for count in range(1, len(MESSAGES) + 1)]
    assert all(longer.startswith(shorter) for shorter, longer in itertools.pairwise(texts))


@pytest.mark.parametrize(
    ("family", "side", "tokens", "grid_side"),
    [
        ("qwen2_5_vl", 28, 1, 2),
        ("qwen2_5_vl", 56, 4, 4),
        ("qwen2_5_vl", 112, 16, 8),
        ("qwen3_vl", 28, 1, 2),  # enlarged to 32 x 32
        ("qwen3_vl", 56, 4, 4),  # enlarged to 64 x 64
        ("qwen3_vl", 640, 64, 16),  # no more than 64 tokens
    ],
)
def test_picture_tokens(family: Architecture, side: int, tokens: int, grid_side: int) -> None:
    picture = Image.fromarray(np.zeros((side, side, 3), np.uint8))
    inputs = make_processor(TOKENIZER, family)(text=[f"frame 1: {PICTURE}"], images=[picture], return_tensors="pt")
    pad = TOKENIZER.convert_tokens_to_ids("<|image_pad|>")
    assert int((inputs["input_ids"] == pad).sum()) == tokens
    assert inputs["image_grid_thw"].tolist() == [[1, grid_side, grid_side]]


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_untrained_model_is_tiny_and_reproducible(family: Architecture) -> None:
    tokenizer: PreTrainedTokenizerFast = TOKENIZER
    one, two = make_model(tokenizer, 3, family), make_model(tokenizer, 3, family)
    assert one.config.model_type == family
    assert 1e6 < sum(parameter.numel() for parameter in one.parameters()) < 5e6
    assert all((a == b).all() for a, b in zip(one.parameters(), two.parameters(), strict=True))
    text = one.config.text_config
    head_dim = getattr(text, "head_dim", text.hidden_size // text.num_attention_heads)
    turning = head_dim * text.rope_parameters.get("partial_rotary_factor", 1)
    assert head_dim in (32, 64) and 2 * sum(text.rope_parameters["mrope_section"]) == turning
    assert one.generation_config.eos_token_id == tokenizer.eos_token_id
