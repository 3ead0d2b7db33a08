"""Qwen2.5-VL's architecture around SmolLM2's language model: tokenizer, configuration, weights.

SmolLM2 is a Llama. Qwen2.5-VL's language model computes the same where the biases of queries, keys and values are 0,
and where a token's three positions are equal, as those of text are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from examples.tiny_models.tiny_model import chat_template, vision_settings

VISION_TOKENS = {
    "<jupyter_start>": "<|vision_start|>",
    "<jupyter_text>": "<|image_pad|>",
    "<jupyter_code>": "<|video_pad|>",
    "<jupyter_output>": "<|vision_end|>",
}
"""Special tokens of SmolLM2 that no conversation uses, and the names that they get for Qwen2.5-VL's processor."""


def with_vision_tokens(tokens: Sequence[str]) -> list[str]:
    """A vocabulary in the order of its ids, with the names that Qwen2.5-VL's processor looks for.

    Raises:
        ValueError: the vocabulary lacks a spare token, or has a vision token already.
    """
    if missing := VISION_TOKENS.keys() - set(tokens):
        raise ValueError(f"the vocabulary lacks the spare tokens {sorted(missing)}; give that of SmolLM2")
    if present := set(VISION_TOKENS.values()) & set(tokens):
        raise ValueError(f"the vocabulary has {sorted(present)} already; give that of SmolLM2 as it was released")
    return [VISION_TOKENS.get(token, token) for token in tokens]


def make_tokenizer(
    tokens: Sequence[str], merges: Sequence[str], special: Sequence[str], max_length: int
) -> PreTrainedTokenizerFast:
    """The byte-level BPE of SmolLM2, whose pieces are single digits, words, and runs of other characters.

    Args:
        tokens: the vocabulary, in the order of its ids.
        merges: pairs of tokens with a space between, first ones first.
        special: tokens of the vocabulary that no text is split into.
        max_length: tokens that the model takes.
    """
    names = with_vision_tokens(tokens)
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    core = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, pairs))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(
        [AddedToken(VISION_TOKENS.get(token, token), special=True, normalized=False) for token in special]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_template()
    return tokenizer


def make_model(
    language_model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, seed: int
) -> Qwen2_5_VLForConditionalGeneration:
    """Qwen2.5-VL in float32: a copy of the language model, and a vision tower of random weights.

    Raises:
        ValueError: a weight of the language model has no place, or one of Qwen2.5-VL has none that it could take.
    """
    llama = language_model.config
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in VISION_TOKENS.values()}
    head_size = llama.hidden_size // llama.num_attention_heads
    quarter = head_size // 8  # an mrope section counts the frequencies, half the head size in all
    shared = {
        name: getattr(llama, name)
        for name in (
            "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "max_position_embeddings", "rms_norm_eps",
        )
    }  # fmt: skip
    config = Qwen2_5_VLConfig(
        text_config={
            **shared,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [quarter, 3 * quarter // 2, 3 * quarter // 2],
                "rope_theta": llama.rope_parameters["rope_theta"],
            },
            "tie_word_embeddings": True,
            "bos_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config=vision_settings("qwen2_5_vl", llama.hidden_size),
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
        dtype="float32",
    )
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(config).float()
    copied = model.model.language_model.load_state_dict(language_model.model.state_dict(), strict=False)
    biases = [name for name in copied.missing_keys if name.endswith(("q_proj.bias", "k_proj.bias", "v_proj.bias"))]
    if copied.unexpected_keys or len(biases) != len(copied.missing_keys):
        raise ValueError(
            f"the language model is no Llama as SmolLM2: its weights {copied.unexpected_keys} have no place, and "
            f"{[name for name in copied.missing_keys if name not in biases]} are missing"
        )
    with torch.no_grad():
        for name, parameter in model.model.language_model.named_parameters():
            if name in biases:
                parameter.zero_()
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model.eval()


@torch.no_grad()
def largest_difference(
    model: Qwen2_5_VLForConditionalGeneration, language_model: LlamaForCausalLM, ids_BL: torch.Tensor
) -> float:
    """Largest difference of the two models' logits for texts; 0.0 where they are equal to the last bit."""
    logits_BLV = model(input_ids=ids_BL, use_cache=False).logits
    expected_BLV = language_model(input_ids=ids_BL, use_cache=False).logits
    return (logits_BLV - expected_BLV).abs().max().item()
