"""Faults of agent loops, each planted where a tap stands, so that it fits any loop.

    the loop  -- give -->  tap  -- read -->    the engine
    the loop  <-- take --  tap  <-- sample --  the engine
    the loop  -- hand_over, place -->          the row

`give` and `take` are faults of a loop: the tap sees what the engine gets and returns. `read` and `sample` are faults of
the engine, of which the tap sees no more than a loop does. `hand_over` and `place` change what is trained on.

A row names its fault in `extra_info.fault` (`plant.py`). Where a fault finds nothing to change (a single image cannot
be swapped), the rollout counts as one without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from verl_video_tools.loop_check.records import STALE_WEIGHTS


@dataclass(frozen=True)
class GivenImage:
    """An image on its way to the engine.

    Attributes:
        handle: what the inference server takes for it.
        name: hash of its size and pixels.
        size: height and width in pixels.
    """

    handle: Any
    name: str
    size: tuple[int, int]


@dataclass(frozen=True)
class Request:
    """What the engine is asked to go on with. `ids` hold a run of placeholders for each image."""

    ids: tuple[int, ...]
    images: tuple[GivenImage, ...]


@dataclass(frozen=True)
class Answer:
    """What the engine has sampled; `log_probs` is None where it was not asked for any."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...] | None


@dataclass(frozen=True)
class HandedOver:
    """What a loop hands over of a sequence, as far as faults change it.

    Attributes:
        session_id: number of the rollout in its group.
        lost: the rollout must not count.
    """

    session_id: int
    mask: tuple[int, ...]
    lost: bool = False


@dataclass(frozen=True)
class Tokens:
    """What faults know of the model.

    Attributes:
        tokenizer: the model's, with `encode` and `decode`.
    """

    image_id: int
    tokenizer: Any


class Fault:
    """Nothing is wrong. Each fault overrides the places where it does its harm."""

    name: ClassVar[str]
    told: ClassVar[str]
    """What is wrong, in half a sentence."""

    def give(self, request: Request, tokens: Tokens) -> Request:
        """What the loop asks the engine."""
        return request

    def read(self, request: Request) -> Request:
        """What the engine makes of the request."""
        return request

    def sample(self, answer: Answer, tokens: Tokens) -> Answer:
        """What the engine samples."""
        return answer

    def take(self, answer: Answer, tokens: Tokens) -> Answer:
        """What the loop makes of the answer."""
        return answer

    def hand_over(self, sequence: HandedOver) -> HandedOver:
        """What the loop hands over for training."""
        return sequence

    def place(self, position_ids: torch.Tensor) -> torch.Tensor:
        """The positions that the row holds, of shape (..., tokens)."""
        return position_ids


class MissingImage(Fault):
    name = "missing_image"
    told = "the engine does not get the last image and its placeholders; the row has both"

    def give(self, request: Request, tokens: Tokens) -> Request:
        if len(request.images) < 2:
            return request
        ids = list(request.ids)
        stop = len(ids) - ids[::-1].index(tokens.image_id)
        first = stop
        while first > 0 and ids[first - 1] == tokens.image_id:
            first -= 1
        return Request((*ids[:first], *ids[stop:]), request.images[:-1])


class WrongOrder(Fault):
    name = "wrong_order"
    told = "the engine gets two images of equal size in swapped order"

    def give(self, request: Request, tokens: Tokens) -> Request:
        images = list(request.images)
        for i, first in enumerate(images):
            for j, second in enumerate(images[i + 1 :], start=i + 1):
                if first.size == second.size and first.name != second.name:
                    images[i], images[j] = second, first
                    return replace(request, images=tuple(images))
        return request


class StaleEncoderCache(Fault):
    name = "stale_encoder_cache"
    told = "in the engine, images of the first one's size have its features"

    def read(self, request: Request) -> Request:
        if not request.images:
            return request
        first = request.images[0]
        return replace(request, images=tuple(first if each.size == first.size else each for each in request.images))


class SampledPlaceholder(Fault):
    name = "sampled_placeholder"
    told = "the engine samples an image placeholder and ends its turn"

    def sample(self, answer: Answer, tokens: Tokens) -> Answer:
        if len(answer.ids) < 2:
            return answer
        # No more than this, so that no call follows: an engine refuses a prompt with a placeholder and no image for it.
        log_probs = (
            None if answer.log_probs is None else (answer.log_probs[0], answer.log_probs[1], answer.log_probs[-1])
        )
        return Answer((answer.ids[0], tokens.image_id, answer.ids[-1]), log_probs)


class RetokenisedText(Fault):
    name = "retokenised_text"
    told = "the loop keeps the sampled text as other tokens"

    def take(self, answer: Answer, tokens: Tokens) -> Answer:
        tokenizer = tokens.tokenizer
        special = set(tokenizer.all_special_ids)
        for i, token in enumerate(answer.ids):
            text = "" if token in special else tokenizer.decode([token])
            pieces = [piece for character in text for piece in tokenizer.encode(character, add_special_tokens=False)]
            if len(pieces) > 1 and tokenizer.decode(pieces) == text:
                log_probs = answer.log_probs
                if log_probs is not None:
                    shared = log_probs[i] / len(pieces)
                    log_probs = (*log_probs[:i], *[shared] * len(pieces), *log_probs[i + 1 :])
                return Answer((*answer.ids[:i], *pieces, *answer.ids[i + 1 :]), log_probs)
        return answer


class MaskOffByOne(Fault):
    name = "mask_off_by_one"
    told = "the loss mask is shifted right by one token"

    def hand_over(self, sequence: HandedOver) -> HandedOver:
        return replace(sequence, mask=(0, *sequence.mask[:-1])) if sequence.mask else sequence


class FlatPositions(Fault):
    name = "flat_positions"
    told = "the row has one-dimensional positions instead of the model's three-dimensional ones"

    def place(self, position_ids: torch.Tensor) -> torch.Tensor:
        return torch.arange(position_ids.shape[-1], dtype=position_ids.dtype).expand_as(position_ids).contiguous()


class LostRollout(Fault):
    name = "lost_rollout"
    told = "the first rollout of a group is lost; it must neither train nor count in the group's mean"

    def hand_over(self, sequence: HandedOver) -> HandedOver:
        return replace(sequence, lost=sequence.session_id == 0)


_FAULTS: Sequence[Fault] = (
    MissingImage(),
    WrongOrder(),
    StaleEncoderCache(),
    SampledPlaceholder(),
    RetokenisedText(),
    MaskOffByOne(),
    FlatPositions(),
    LostRollout(),
)
FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in _FAULTS}
"""Those that a row plants, by their names."""
TOLD: Mapping[str, str] = {
    **{fault.name: fault.told for fault in _FAULTS},
    STALE_WEIGHTS: "the engine reports the new weights but has the former ones",
}
"""What each fault is, that of a whole run included."""
