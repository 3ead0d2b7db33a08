"""The tiny Qwen2.5-VL of the demonstration: tokenizer, processor and randomly initialised model, made here.

Nothing is downloaded: the architecture and the processor classes are the real ones of `transformers`, in miniature, so
that verl and vLLM treat the model as they treat its big siblings.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
)
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

from .corpus import tokenizer_corpus

SPECIAL_TOKENS: tuple[str, ...] = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
VISIBLE_TOKENS: tuple[str, ...] = ("<tool_call>", "</tool_call>")
"""Single tokens that decoding with `skip_special_tokens` keeps, as in Qwen's own tokenizer."""

VOCABULARY_SIZE = 768
MIN_PIXELS = 28 * 28
MAX_PIXELS = 224 * 224
MAX_POSITIONS = 8192

# Every digit, every line break and every capital letter that stands alone is its own token; a space joins a following
# word, but never a number or such a letter. So "170" and "B" read the same wherever they stand, which makes copying
# easy, and text may be cut at pictures or at line ends without changing its tokens.
_LETTER = r"\p{Lu}(?!\p{L})"
_PIECES = rf"\d|\n|{_LETTER}| ?(?!{_LETTER})\p{{L}}+| ?[^\s\p{{L}}\p{{N}}]+|\p{{N}}|\s"


def chat_template() -> str:
    """ChatML: a system message only where one is given; contents are strings or lists of items."""
    return (Path(str(files(__package__))) / "chat_template.jinja").read_text(encoding="utf-8").rstrip("\n")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE trained on `corpus`: any text encodes and decodes to itself. Ends turns with `<|im_end|>`."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(VISIBLE_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    core.train_from_iterator(tokenizer_corpus(), trainer)
    core.add_tokens([AddedToken(token, special=False, normalized=False) for token in VISIBLE_TOKENS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL_TOKENS),
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_template()
    return tokenizer


def make_processor(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLProcessor:
    """Qwen2.5-VL's processor with patch 14 and merge 2: a picture of 56 x 56 pixels becomes 4 tokens."""
    pixels = {"min_pixels": MIN_PIXELS, "max_pixels": MAX_PIXELS, "patch_size": 14, "merge_size": 2}
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**pixels),
        chat_template=chat_template(),
    )


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> Qwen2_5_VLForConditionalGeneration:
    """A randomly initialised model in float32. Heads of 32 are the smallest that vLLM's CPU attention takes."""
    hidden = 128
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "initializer_range": 0.05,  # the usual 0.02 is for models thirty times as wide
            "hidden_size": hidden,
            "intermediate_size": 256,
            "num_hidden_layers": 5,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": MAX_POSITIONS,
            "rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 10000.0},
            "tie_word_embeddings": False,
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": hidden,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "fullatt_block_indexes": [0, 1],
            "window_size": 112,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
        dtype="float32",
    )
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(config).float()
    model.generation_config = GenerationConfig(
        eos_token_id=ids["<|im_end|>"], pad_token_id=ids["<|endoftext|>"], bos_token_id=ids["<|endoftext|>"]
    )
    return model


def save(model: Qwen2_5_VLForConditionalGeneration, processor: Qwen2_5_VLProcessor, folder: str | Path) -> None:
    """Writes weights, configuration, tokenizer, processor and generation defaults, as `from_pretrained` reads them."""
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
