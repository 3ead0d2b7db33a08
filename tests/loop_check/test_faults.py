"""Each fault on hand-made requests, answers and rows."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples.tiny_models.tiny_model import make_tokenizer
from verl_video_tools.loop_check.faults import FAULTS, TOLD, Answer, Fault, GivenImage, HandedOver, Request, Tokens
from verl_video_tools.rollout.tokens import placeholder_runs

IMAGE = 7
SMALL, LARGE = (28, 28), (56, 56)


@lru_cache(maxsize=1)
def tokens() -> Tokens:
    tokenizer = make_tokenizer()
    return Tokens(tokenizer.convert_tokens_to_ids("<|image_pad|>"), tokenizer)


def request(*images: tuple[str, tuple[int, int]]) -> Request:
    """One placeholder for a small image, four for a large one."""
    ids = [1]
    for _, size in images:
        ids += [2, *[IMAGE] * (1 if size == SMALL else 4), 3]
    return Request((*ids, 4), tuple(GivenImage(f"handle of {name}", name, size) for name, size in images))


def give(name: str, asked: Request) -> Request:
    return FAULTS[name].give(asked, replace(tokens(), image_id=IMAGE))


def test_no_fault_changes_nothing() -> None:
    asked, answer, handed_over = request(("a", SMALL)), Answer((1, 2), (-0.1, -0.2)), HandedOver(0, (1, 0))
    clean, positions = Fault(), torch.arange(4).expand(1, 4, 4)
    assert clean.read(clean.give(asked, tokens())) == asked
    assert clean.take(clean.sample(answer, tokens()), tokens()) == answer
    assert clean.hand_over(handed_over) == handed_over
    assert clean.place(positions) is positions


def test_every_fault_is_told() -> None:
    assert set(TOLD) == {*FAULTS, "stale_weights"}


def test_the_last_image_is_missing_with_its_placeholders() -> None:
    given_ = give("missing_image", request(("a", SMALL), ("b", LARGE), ("c", LARGE)))
    assert [image.name for image in given_.images] == ["a", "b"]
    assert given_.ids == (1, 2, IMAGE, 3, 2, *[IMAGE] * 4, 3, 2, 3, 4)
    assert placeholder_runs(given_.ids, IMAGE) == [1, 4]


def test_a_lone_image_is_not_missing() -> None:
    assert give("missing_image", request(("a", SMALL))) == request(("a", SMALL))


def test_two_images_of_one_size_change_places() -> None:
    given_ = give("wrong_order", request(("a", SMALL), ("b", LARGE), ("c", SMALL)))
    assert [image.name for image in given_.images] == ["c", "b", "a"]
    assert given_.ids == request(("a", SMALL), ("b", LARGE), ("c", SMALL)).ids


@pytest.mark.parametrize("images", [[("a", SMALL), ("b", LARGE)], [("a", SMALL), ("a", SMALL)], []])
def test_no_images_that_could_change_places(images: list[Any]) -> None:
    assert give("wrong_order", request(*images)) == request(*images)


def test_a_stale_cache_gives_all_of_a_size_the_first_ones_features() -> None:
    asked = request(("a", SMALL), ("b", LARGE), ("c", SMALL))
    fault = FAULTS["stale_encoder_cache"]
    assert fault.give(asked, tokens()) == asked, "the tap must not see it"
    read = fault.read(asked)
    assert [image.name for image in read.images] == ["a", "b", "a"]
    assert read.ids == asked.ids
    assert fault.read(request()) == request()


def test_a_sampled_placeholder_ends_the_turn() -> None:
    answer = FAULTS["sampled_placeholder"].sample(Answer((5, 6, 8, 9), (-0.1, -0.2, -0.3, -0.4)), tokens())
    assert answer == Answer((5, tokens().image_id, 9), (-0.1, -0.2, -0.4))
    assert FAULTS["sampled_placeholder"].sample(Answer((5,), None), tokens()) == Answer((5,), None)


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), max_size=60))
def test_retokenised_text_reads_alike_and_has_as_many_log_probabilities(text: str) -> None:
    tokenizer = tokens().tokenizer
    ids = tuple(tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False))
    taken = FAULTS["retokenised_text"].take(Answer(ids, tuple(-0.5 for _ in ids)), tokens())
    assert tokenizer.decode(taken.ids) == tokenizer.decode(ids)
    assert taken.log_probs is not None and len(taken.log_probs) == len(taken.ids)
    assert sum(taken.log_probs) == pytest.approx(-0.5 * len(ids))


def test_a_common_text_is_retokenised() -> None:
    tokenizer = tokens().tokenizer
    ids = tuple(tokenizer.encode("<think>The red circle is shown.</think><answer>B</answer>", add_special_tokens=False))
    for log_probs in (None, tuple(-0.5 for _ in ids)):
        taken = FAULTS["retokenised_text"].take(Answer(ids, log_probs), tokens())
        assert taken.ids != ids and len(taken.ids) > len(ids)
        assert (taken.log_probs is None) == (log_probs is None)


def test_special_tokens_are_not_retokenised() -> None:
    end = tokens().tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert FAULTS["retokenised_text"].take(Answer((end, end), None), tokens()) == Answer((end, end), None)


def test_the_mask_lies_one_to_the_right() -> None:
    assert FAULTS["mask_off_by_one"].hand_over(HandedOver(3, (1, 1, 0, 0, 1))).mask == (0, 1, 1, 0, 0)
    assert FAULTS["mask_off_by_one"].hand_over(HandedOver(3, (0, 0))) == HandedOver(3, (0, 0)), "nothing to shift"


def test_positions_in_reading_order() -> None:
    own = torch.tensor([[[0, 1, 2, 3], [0, 1, 1, 2], [0, 1, 1, 2], [0, 1, 2, 3]]])
    flat = FAULTS["flat_positions"].place(own)
    assert flat.shape == own.shape and flat.dtype == own.dtype
    assert flat.tolist() == [[[0, 1, 2, 3]] * 4]


def test_the_first_rollout_of_a_group_is_lost() -> None:
    fault = FAULTS["lost_rollout"]
    assert [fault.hand_over(HandedOver(i, (1,))).lost for i in range(3)] == [True, False, False]
