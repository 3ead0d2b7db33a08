"""Makes the untrained model: `python -m examples.smollm.make_model --gguf FILE --out FOLDER --seed 0`.

FILE is SmolLM2-135M-Instruct as GGUF; `gguf` has to be importable. The program checks that ids are the file's, that
chats read as the file's own template writes them, and that logits of texts are those of the language model alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from gguf import GGUFReader, TokenType
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from examples.smollm.vision_language import largest_difference, make_model, make_tokenizer, with_vision_tokens
from examples.tiny_models.tiny_model import make_processor, save

CHAT = [
    {"role": "system", "content": "You watch a video through single frames."},
    {"role": "user", "content": "What is shown at 0:34?\nA. red circle\nB. blue square"},
    {"role": "assistant", "content": "<think>I look at frame 170.</think>"},
]
"""A system message stands first: without one SmolLM2's template adds its own, and ours adds none."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of the vision tower")
    arguments = parser.parse_args()

    fields = GGUFReader(arguments.gguf).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == TokenType.CONTROL]
    max_length = fields["llama.context_length"].contents()
    tokenizer = make_tokenizer(tokens, fields["tokenizer.ggml.merges"].contents(), special, max_length)
    text = tokenizer.apply_chat_template(CHAT, tokenize=False)
    theirs = tokenizer.apply_chat_template(
        CHAT, tokenize=False, chat_template=fields["tokenizer.chat_template"].contents()
    )
    language_model = LlamaForCausalLM.from_pretrained(
        arguments.gguf.parent, gguf_file=arguments.gguf.name, dtype=torch.float32
    ).eval()
    model = make_model(language_model, tokenizer, arguments.seed)
    difference = largest_difference(model, language_model, torch.tensor([tokenizer.encode(text)]))
    checks = {
        "ids are those of the file": _vocabulary(tokenizer) == with_vision_tokens(tokens),
        "chats are written alike": text == theirs,
        "logits are equal to the last bit": difference == 0.0,
    }
    print(json.dumps({**checks, "largest difference of logits": difference, "parameters": model.num_parameters()}))
    if not all(checks.values()):
        sys.exit("error: the model does not read as its language model does; nothing was written")
    save(model, make_processor(tokenizer), arguments.out)


def _vocabulary(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    return tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))


if __name__ == "__main__":
    main()
