"""The tiny models of the demonstration and of tests: tokenizer, processor and a randomly initialised Qwen-VL model.

All is made here, nothing downloaded: architectures and processor classes are the real ones of `transformers`, in
miniature, so that verl and vLLM treat a model as they treat its big siblings.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

from examples.tiny_models.corpus import tokenizer_corpus
from verl_video_tools.core.files import share_weights
from verl_video_tools.verl_plugin.export_model import restore_expert_layout

Architecture = Literal["qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"]
"""By the name that a configuration has under `model_type`. Those of `synthetic.Family` have trained weights as well."""

ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)

TinyModel: TypeAlias = (
    Qwen2_5_VLForConditionalGeneration
    | Qwen3VLForConditionalGeneration
    | Qwen3VLMoeForConditionalGeneration
    | Qwen3_5ForConditionalGeneration
    | Qwen3_5MoeForConditionalGeneration
)
TinyProcessor: TypeAlias = Qwen2_5_VLProcessor | Qwen3VLProcessor

SPECIAL_TOKENS: tuple[str, ...] = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
VISIBLE_TOKENS: tuple[str, ...] = ("<tool_call>", "</tool_call>")
"""Single tokens that decoding with `skip_special_tokens` keeps, as in Qwen's own tokenizer."""

VOCABULARY_SIZE = 768
MAX_POSITIONS = 8192
HIDDEN_SIZE = 128

# Every digit, every line break and every capital letter that stands alone is its own token; a space joins a following
# word, but never a number or such a letter. So "170" and "B" read the same wherever they stand, which makes copying
# easy, and text may be cut at pictures or at line ends without changing its tokens.
_LETTER = r"\p{Lu}(?!\p{L})"
_PIECES = rf"\d|\n|{_LETTER}| ?(?!{_LETTER})\p{{L}}+| ?[^\s\p{{L}}\p{{N}}]+|\p{{N}}|\s"


def chat_template() -> str:
    """ChatML: a system message only where one is given; contents are strings or lists of items."""
    return Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8").rstrip("\n")


@cache
def trained_tokenizer() -> str:
    """JSON of a byte-level BPE trained on `corpus`, which takes half a second of every core: once for a process."""
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
    return str(core.to_str())


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE: any text encodes and decodes to itself. Ends turns with `<|im_end|>`."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(trained_tokenizer()),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL_TOKENS),
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_template()
    return tokenizer


def make_processor(tokenizer: PreTrainedTokenizerFast, family: Architecture = "qwen2_5_vl") -> TinyProcessor:
    """The family's processor, for pictures of 1 to 64 tokens; one of 56 x 56 pixels becomes 4 tokens.

    Qwen2.5-VL cuts pictures into patches of 14 pixels, Qwen3-VL of 16; both merge 2 x 2 patches into a token. So the
    latter first enlarges a picture of 56 x 56 pixels to 64 x 64. Qwen3.5 and the mixtures of experts have the processor
    of Qwen3-VL.
    """
    if family == "qwen2_5_vl":
        options = _pixels(14)
        return Qwen2_5_VLProcessor(
            image_processor=Qwen2VLImageProcessor(**options),
            tokenizer=tokenizer,
            video_processor=Qwen2VLVideoProcessor(**options),
            chat_template=chat_template(),
        )
    options = _pixels(16) | {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**options),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**options),
        chat_template=chat_template(),
    )


def _pixels(patch_size: int) -> dict[str, Any]:
    token_side = 2 * patch_size
    return {
        "min_pixels": token_side**2,
        "max_pixels": 64 * token_side**2,
        "patch_size": patch_size,
        "merge_size": 2,
    }


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0, family: Architecture = "qwen2_5_vl") -> TinyModel:
    """A randomly initialised model in float32. Heads of 32 are the smallest that vLLM's CPU attention takes."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    make_config, make = _CLASSES[family]
    text, _ = _ARCHITECTURES[family]
    config = make_config(
        text_config={
            "vocab_size": len(tokenizer),
            "initializer_range": 0.05,  # the usual 0.02 is for models thirty times as wide
            "hidden_size": HIDDEN_SIZE,
            "intermediate_size": 256,
            "num_hidden_layers": 5,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": MAX_POSITIONS,
            "tie_word_embeddings": False,
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
            **text,
        },
        vision_config=vision_settings(family, HIDDEN_SIZE),
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
        dtype="float32",
    )
    torch.manual_seed(seed)
    model: TinyModel = make(config).float()
    model.generation_config = GenerationConfig(
        eos_token_id=ids["<|im_end|>"], pad_token_id=ids["<|endoftext|>"], bos_token_id=ids["<|endoftext|>"]
    )
    return model


_CLASSES: dict[Architecture, tuple[type[Any], type[TinyModel]]] = {
    "qwen2_5_vl": (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration),
    "qwen3_vl": (Qwen3VLConfig, Qwen3VLForConditionalGeneration),
    "qwen3_vl_moe": (Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration),
    "qwen3_5": (Qwen3_5Config, Qwen3_5ForConditionalGeneration),
    "qwen3_5_moe": (Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration),
}

# What the families do not share, for the text and the vision part. An mrope section counts the frequencies, half of
# what turns of a head in all, that turn with time, row and column.
_QWEN3_VL_TEXT: dict[str, Any] = {
    "head_dim": 32,
    "rope_parameters": {
        "rope_type": "default",
        "mrope_section": [6, 5, 5],
        "mrope_interleaved": True,
        "rope_theta": 10000.0,
    },
}
# Layers 1, 2, 3 and 5 have linear attention, and layer 4 has softmax attention, of whose heads a quarter turns.
_QWEN3_5_TEXT: dict[str, Any] = {
    "head_dim": 64,
    "rope_parameters": {
        "rope_type": "default",
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
    },
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,  # the smallest that vLLM's kernels for CPUs take
    "linear_value_head_dim": 64,
    "mamba_ssm_dtype": "float32",  # of the state in vLLM, as in released models
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 96,  # no expert's weight is square, so that none passes for its transpose
}
_QWEN3_5_VISION: dict[str, Any] = {"patch_size": 16, "num_position_embeddings": 64}
_QWEN3_VL_VISION: dict[str, Any] = _QWEN3_5_VISION | {"deepstack_visual_indexes": [0, 1]}
_ARCHITECTURES: dict[Architecture, tuple[dict[str, Any], dict[str, Any]]] = {
    "qwen2_5_vl": (
        {"rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 10000.0}},
        {"patch_size": 14, "fullatt_block_indexes": [0, 1], "window_size": 112},
    ),
    "qwen3_vl": (_QWEN3_VL_TEXT, _QWEN3_VL_VISION),
    "qwen3_vl_moe": (_QWEN3_VL_TEXT | _EXPERTS | {"norm_topk_prob": True}, _QWEN3_VL_VISION),  # which vLLM reads
    "qwen3_5": (_QWEN3_5_TEXT, _QWEN3_5_VISION),
    "qwen3_5_moe": (_QWEN3_5_TEXT | _EXPERTS | {"shared_expert_intermediate_size": 96}, _QWEN3_5_VISION),
}


def vision_settings(family: Architecture, hidden_size: int) -> dict[str, Any]:
    """Configuration of the family's vision tower for a language model of `hidden_size`."""
    _, vision = _ARCHITECTURES[family]
    return {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "out_hidden_size": hidden_size,
        "spatial_merge_size": 2,
        **vision,
    }


def merger_outputs(model: TinyModel) -> list[torch.nn.Linear]:
    """The layers that write picture features: of the input embeddings, then, in Qwen3-VL, of each deepstack level."""
    visual = model.model.visual
    if isinstance(model, Qwen2_5_VLForConditionalGeneration):
        return [visual.merger.mlp[-1]]
    return [merger.linear_fc2 for merger in (visual.merger, *getattr(visual, "deepstack_merger_list", ()))]


def save(model: TinyModel, processor: TinyProcessor, folder: str | Path) -> None:
    """Writes weights, configuration, tokenizer, processor and generation defaults, as `from_pretrained` reads them."""
    model.save_pretrained(folder)
    restore_expert_layout(Path(folder))
    processor.save_pretrained(folder)
    share_weights(Path(folder))
