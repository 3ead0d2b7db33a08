"""Conversations as padded tensors, and the forward pass over them with picture features computed beforehand."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from examples.tiny_models.frame_pool import FramePool
from examples.tiny_models.perception import Piece, Stage, opening, turn
from examples.tiny_models.tiny_model import TinyModel

IGNORED = -100


@dataclass
class Batch:
    """Padded sequences: `ids_BL`, `labels_BL` (already shifted: the token to predict, or -100), `positions_3BL` (time,
    row, column, as Qwen2.5-VL and Qwen3-VL number pictures) and, for each picture token in reading order, its row of
    the feature table.
    """

    ids_BL: torch.Tensor
    labels_BL: torch.Tensor
    positions_3BL: torch.Tensor
    feature_rows: torch.Tensor


@dataclass
class Sequence:
    """One row under construction: ids, labels (not shifted), positions per axis, and the pool frame of each picture."""

    ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    positions: list[list[int]] = field(default_factory=lambda: [[], [], []])
    frames: list[int] = field(default_factory=list)
    next_position: int = 0

    def copy(self) -> Sequence:
        """An independent copy."""
        positions = [list(axis) for axis in self.positions]
        return Sequence(list(self.ids), list(self.labels), positions, list(self.frames), self.next_position)


class Encoder:
    """Turns practice conversations into token sequences, drawing a random frame of the pool for each picture."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, pool: FramePool, seed: int) -> None:
        self.tokenizer = tokenizer
        self.members = pool.by_class()
        self.rng = np.random.default_rng(seed)
        self.picture_ids = tokenizer.encode("<|vision_start|>" + "<|image_pad|>" * 4 + "<|vision_end|>")
        self.image_id = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        self.pad_id = tokenizer.pad_token_id

    def append(self, row: Sequence, pieces: list[Piece]) -> None:
        """Adds pieces of conversation to `row`, in place."""
        here = row.next_position
        for piece in pieces:
            if piece.picture is not None:
                row.ids += self.picture_ids
                row.labels += [IGNORED] * 6
                row.frames.append(int(self.rng.choice(self.members[piece.picture])))
                for axis, offsets in enumerate(((0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 1))):
                    row.positions[axis] += [here, *(here + 1 + offset for offset in offsets), here + 3]
                here += 4  # start, a picture of 2 x 2 tokens that takes two positions, end
                continue
            tokens = self.tokenizer.encode(piece.text)
            row.ids += tokens
            row.labels += tokens if piece.target else [IGNORED] * len(tokens)
            for axis in range(3):
                row.positions[axis] += range(here, here + len(tokens))
            here += len(tokens)
        row.next_position = here

    def row(self, rng: random.Random, length: int, stage: Stage) -> Sequence:
        """A conversation of as many turns as fit into `length` tokens."""
        row = Sequence()
        self.append(row, opening(rng))
        while True:
            longer = row.copy()
            self.append(longer, turn(rng, stage))
            if len(longer.ids) > length:
                if any(label != IGNORED for label in row.labels):
                    return row
                row = Sequence()  # the opening left no room for a turn: start again without it
                continue
            row = longer

    def batch(self, rows: list[Sequence]) -> Batch:
        """Pads on the right: with causal attention the padding changes nothing before it."""
        shape = (len(rows), max(len(row.ids) for row in rows))
        ids_BL = torch.full(shape, self.pad_id)
        labels_BL = torch.full(shape, IGNORED)
        positions_3BL = torch.zeros((3, *shape), dtype=torch.long)
        features: list[int] = []
        for index, row in enumerate(rows):
            ids_BL[index, : len(row.ids)] = torch.tensor(row.ids)
            labels_BL[index, : len(row.ids) - 1] = torch.tensor(row.labels[1:])
            positions_3BL[:, index, : len(row.ids)] = torch.tensor(row.positions)
            features += [frame * 4 + token for frame in row.frames for token in range(4)]
        return Batch(ids_BL, labels_BL, positions_3BL, torch.tensor(features, dtype=torch.long))


def logits_at_targets(
    model: TinyModel, batch: Batch, features: torch.Tensor, image_id: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and wanted tokens at the positions that have a label.

    Args:
        features: levels x rows of picture tokens x hidden size, as `vision_pretrain.all_features` gives them.
    """
    language = model.model.language_model
    embeddings = language.embed_tokens(batch.ids_BL)
    is_picture_BL = batch.ids_BL == image_id
    shown, *deepstack = features[:, batch.feature_rows]
    embeddings = embeddings.masked_scatter(is_picture_BL.unsqueeze(-1).expand_as(embeddings), shown)
    further = {"visual_pos_masks": is_picture_BL, "deepstack_visual_embeds": deepstack} if deepstack else {}
    hidden = language(
        inputs_embeds=embeddings, position_ids=batch.positions_3BL, use_cache=False, **further
    ).last_hidden_state
    wanted = batch.labels_BL != IGNORED
    return model.lm_head(hidden[wanted]), batch.labels_BL[wanted]
