"""The tiny CLIP of the demonstration: tokenizer, image processor, fresh model, and what is said of frames.

The classes are the real ones of `transformers`, in miniature, so that the retrieval service treats the model as it
treats its big siblings. Words are whole tokens; one that the world does not know is `<|unknown|>`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, PreTrainedTokenizerFast

from examples.tiny_models.frame_pool import NOTHING
from verl_video_tools.core.files import share_weights
from verl_video_tools.synthetic.world import COLOURS, LABELS, SHAPES, SIDE_PIXELS

MAX_TEXT_TOKENS = 24
PADDING, UNKNOWN, START, END = "<|padding|>", "<|unknown|>", "<|startoftext|>", "<|endoftext|>"

PHRASES: dict[str, tuple[int, ...]] = {
    **{label: (number,) for number, label in enumerate(LABELS)},
    **{f"{colour} shape": tuple(n for n, label in enumerate(LABELS) if label.startswith(colour)) for colour in COLOURS},
    **{shape: tuple(n for n, label in enumerate(LABELS) if label.endswith(shape)) for shape in SHAPES},
    "nothing": (NOTHING,),
}
"""What may be asked for, and the classes of frames (as in `frame_pool`) that show it."""

_TEMPLATES = (
    "{}", "{}", "a {}", "the {}", "{} appears", "a large {}", "find the {}", "the {} is visible", "is there a {}?",
    "when does the {} appear?", "where is the {}?", "a frame with a {}", "a frame that shows the {}",
    "an image of a {}", "a photo of a {}", "the moment when the {} is shown", "a scene in which a {} can be seen",
    "video frame showing a {} on the screen", "what is shown when the {} appears",
)  # fmt: skip
_NOTHING_TEXTS = ("nothing", "nothing is shown", "an empty background", "only the background", "an empty frame")
_COLOUR_WORDS = ("shape", "thing", "object", "")
_WORDS = re.compile(r"\w+|[^\w\s]")


def sentence(phrase: str, rng: random.Random) -> str:
    """One way to ask for a phrase of `PHRASES`; now and then with a word that nobody knows."""
    if phrase == "nothing":
        return rng.choice(_NOTHING_TEXTS)
    words = phrase.replace("shape", rng.choice(_COLOUR_WORDS)).strip()
    text = rng.choice(_TEMPLATES).format(words)
    if rng.random() < 0.3:
        pieces = text.split(" ")
        pieces.insert(rng.randrange(len(pieces) + 1), UNKNOWN)
        text = " ".join(pieces)
    return text


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word of lower-case text, between a start and an end token; never fails on a text."""
    words = {word for text in (*_TEMPLATES, *_NOTHING_TEXTS, *PHRASES, *_COLOUR_WORDS) for word in _WORDS.findall(text)}
    vocabulary = (PADDING, UNKNOWN, START, END, *sorted(words - {"{", "}"}))
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(token, core.token_to_id(token)) for token in (START, END)]
    core.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=START,
        eos_token=END,
        pad_token=PADDING,
        unk_token=UNKNOWN,
        model_max_length=MAX_TEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def make_image_processor() -> CLIPImageProcessor:
    """CLIP's own preparation (shorter side, square from the centre, CLIP's mean and spread) at 56 pixels."""
    return CLIPImageProcessor(
        size={"shortest_edge": SIDE_PIXELS}, crop_size={"height": SIDE_PIXELS, "width": SIDE_PIXELS}
    )


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> CLIPModel:
    """A randomly initialised model of about half a million parameters, in float32."""
    config = CLIPConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": MAX_TEXT_TOKENS,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "hidden_size": 96,
            "intermediate_size": 192,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "image_size": SIDE_PIXELS,
            "patch_size": 14,
        },
        projection_dim=64,
    )
    torch.manual_seed(seed)
    return CLIPModel(config).float()


def save(model: CLIPModel, tokenizer: PreTrainedTokenizerFast, folder: str | Path) -> None:
    """Write weights, configuration, tokenizer and image processor, as `from_pretrained` reads them."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    make_image_processor().save_pretrained(folder)
    share_weights(Path(folder))
