"""Teaches the model to see: `python -m examples.smollm.pretrain --model FOLDER --out FOLDER --seed 0`.

Only the vision tower and its merger are trained. Each picture has 4 tokens, and they become the embeddings of the words
that name what the picture shows: " red", " circle", and both again. So the language model, which stays as it is, can
read a picture as it reads a caption. JSON lines on standard output.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from transformers import AutoProcessor, PreTrainedTokenizerFast, Qwen2_5_VLForConditionalGeneration

from examples.tiny_models.evaluate import VALIDATION_SEED
from examples.tiny_models.frame_pool import NOTHING, FramePool, class_name, make_pool
from examples.tiny_models.tiny_model import TinyModel, save
from examples.tiny_models.vision_pretrain import TOKENS_PER_FRAME, Objective, all_features, pretrain_vision
from verl_video_tools.core.files import write_json


class WordEmbeddings(Objective):
    """Picture tokens have to be the embeddings of the words for what the picture shows.

    The loss is the share of the embeddings' variance that is missed.
    """

    targets_CTH: torch.Tensor

    def __init__(self, model: TinyModel, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__()
        ids_CT = torch.tensor([word_ids(tokenizer, number) for number in range(NOTHING + 1)])
        embeddings = model.model.language_model.embed_tokens.weight.detach()
        self.register_buffer("targets_CTH", embeddings[ids_CT])

    def forward(self, features_LNTH: torch.Tensor, classes_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features_NTH = features_LNTH[0]  # Qwen2.5-VL has no deepstack
        missed = (features_NTH - self.targets_CTH[classes_N]).square().mean()
        distances_NC = torch.cdist(features_NTH.flatten(1), self.targets_CTH.flatten(1))
        return missed / self.targets_CTH.var(), distances_NC.argmin(-1)


def word_ids(tokenizer: PreTrainedTokenizerFast, class_number: int) -> list[int]:
    """Tokens of a class's name inside a sentence, repeated until they fill a picture's tokens.

    Raises:
        ValueError: the name has more tokens than a picture.
    """
    ids = tokenizer.encode(f" {class_name(class_number)}")
    if len(ids) > TOKENS_PER_FRAME:
        raise ValueError(
            f"{class_name(class_number)!r} takes {len(ids)} tokens and a picture has {TOKENS_PER_FRAME}; give a "
            "tokenizer that knows the words"
        )
    return [ids[position % len(ids)] for position in range(TOKENS_PER_FRAME)]


@torch.no_grad()
def share_recognised(model: TinyModel, processor: AutoProcessor, objective: WordEmbeddings, pool: FramePool) -> float:
    """Share of frames whose features are nearest to the words of what they show."""
    table = all_features(model, processor.image_processor, pool)
    features_LNTH = table.view(len(table), len(pool.frames_NHWC), TOKENS_PER_FRAME, -1)
    classes_N = torch.from_numpy(pool.classes_N)
    _, named_N = objective(features_LNTH, classes_N)
    return (named_N == classes_N).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--videos", type=int, default=60, help="videos rendered to draw frames from")
    parser.add_argument("--held-out-videos", type=int, default=12)
    arguments = parser.parse_args()
    started = time.monotonic()

    def log(entry: dict[str, float | int | str]) -> None:
        print(json.dumps({**entry, "seconds": round(time.monotonic() - started, 1)}), flush=True)

    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(arguments.model, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(arguments.model)
    objective = WordEmbeddings(model, processor.tokenizer)
    pool = make_pool(arguments.videos, arguments.seed)
    log({"part": "frames", "frames": len(pool.frames_NHWC)})
    pretrain_vision(model, processor.image_processor, pool, arguments.steps, arguments.seed, log, objective=objective)
    recognised = share_recognised(
        model.eval(), processor, objective, make_pool(arguments.held_out_videos, VALIDATION_SEED)
    )
    save(model, processor, arguments.out)
    write_json(arguments.out / "recognised.json", {"recognised": recognised})
    log({"part": "held-out frames", "recognised": round(recognised, 4)})


if __name__ == "__main__":
    main()
