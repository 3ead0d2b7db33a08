"""The token stream on hand-written ids, and that its invariants catch planted faults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.types import FrameRecord, ImagePart, Message, StopReason
from verl_video_tools.rollout.tokens import (
    RolloutTokens,
    TokenBudget,
    TokenCounter,
    TokenStream,
    check_invariants,
    placeholder_runs,
    to_chat_message,
)

# One letter per token: p prompt, I placeholder, a sampled, E end of turn, n newline, o observation, g next header.
LETTERS = "pIaEnog"
IMAGE, END = LETTERS.index("I"), LETTERS.index("E")


def ids(letters: str) -> list[int]:
    return [LETTERS.index(letter) for letter in letters.replace(" ", "").replace("|", "")]


def letters(token_ids: list[int]) -> str:
    return "".join(LETTERS[token] for token in token_ids)


class HandBuilder:
    """Two tokens of text around each picture's placeholder; a turn is closed by E and a newline."""

    tokenizer: Any = None

    def build_initial_tokens(self, messages: list[dict]) -> list[int]:
        return ids("pp" + "Ip" * count_images(messages))

    def merge_context_tokens(self, previous: list[dict], updated: list[dict], runtime: list[int]) -> Any:
        newline = "n" if letters(runtime).endswith("E") else ""
        return SimpleNamespace(token_ids=runtime + ids(newline) + self._observation(updated))

    def tokenize_context_incremental_messages(self, previous: list[dict], updated: list[dict]) -> list[int]:
        return self._observation(updated)

    def _observation(self, messages: list[dict]) -> list[int]:
        return ids("oIo" * count_images(messages) + "gg")


def count_images(messages: list[dict]) -> int:
    return sum(item["type"] == "image" for message in messages for item in message["content"])


def picture(side: int = 2) -> ImagePart:
    return ImagePart(FrameRecord(0, 0.0, side, 1), np.zeros((1, side, 3), np.uint8))


def empty_stream(builder: Any = None) -> TokenStream:
    return TokenStream(TokenCounter(builder or HandBuilder(), IMAGE, factor=1))


def example() -> TokenStream:
    stream = empty_stream()
    stream.start([Message("user", ("look", picture()))])
    stream.append_turn(ids("aaE"), [-0.1, -0.2, -0.3])
    stream.append_observation((picture(), picture()), END)
    stream.append_turn(ids("aa"), [-0.4, -0.5])
    stream.append_observation((picture(),), END)
    stream.append_turn(ids("aE"), [-0.6, -0.7])
    return stream


def test_golden_layout() -> None:
    stream = example()
    #         sampled | observation    | sampled, cut | E added, observation | sampled
    tokens = "aaE     | n oIIo oIIo gg | aa           | E n oIIo gg          | aE"
    mask = "  111     | 0 0000 0000 00 | 11           | 0 0 0000 00          | 11"
    assert letters(stream.prompt_ids) == "ppIIp"
    assert letters(stream.response_ids) == tokens.replace(" ", "").replace("|", "")
    assert "".join(map(str, stream.response_mask)) == mask.replace(" ", "").replace("|", "")
    assert [value for value in stream.response_logprobs if value] == [-0.1, -0.2, -0.3, -0.4, -0.5, -0.6, -0.7]
    assert [bool(value) for value in stream.response_logprobs] == [bool(keep) for keep in stream.response_mask]
    assert len(stream.images) == 4
    check_invariants(stream, IMAGE, [2, 2, 2, 2])


def test_turns_without_logprobs_get_zeros() -> None:
    stream = empty_stream()
    stream.start([Message("user", ("look",))])
    stream.append_turn(ids("aaE"), None)
    assert stream.response_logprobs == [0.0, 0.0, 0.0]
    check_invariants(stream, IMAGE, [])


def test_builder_that_rewrites_generated_tokens_is_refused() -> None:
    class Rewriter(HandBuilder):
        def merge_context_tokens(self, previous: list[dict], updated: list[dict], runtime: list[int]) -> Any:
            return SimpleNamespace(token_ids=ids("a") + runtime[1:] + ids("gg"))

    stream = empty_stream(Rewriter())
    stream.start([Message("user", ("look",))])
    stream.append_turn(ids("aE"), None)
    with pytest.raises(InvariantError, match="changed tokens"):
        stream.append_observation(("seen",), END)


def test_picture_without_pixels_is_refused() -> None:
    stream = empty_stream()
    with pytest.raises(InvariantError, match="without pixels"):
        stream.start([Message("user", (ImagePart(FrameRecord(0, 0.0, 2, 1)),))])


# ------------------------------------------------------------------------------------------------------ planted faults


def shift_mask(stream: TokenStream) -> None:
    stream.response_mask = [0, *stream.response_mask[:-1]]


def drop_mask_of_one_token(stream: TokenStream) -> None:
    stream.response_mask[1] = 0


def train_on_an_observation(stream: TokenStream) -> None:
    stream.response_mask[4] = 1


def swap_a_sampled_token(stream: TokenStream) -> None:
    stream.response_ids[0] = LETTERS.index("o")


def one_logprob_too_many(stream: TokenStream) -> None:
    stream.response_logprobs.append(-0.8)


def one_mask_entry_too_few(stream: TokenStream) -> None:
    stream.response_mask.pop()


def lose_a_placeholder(stream: TokenStream) -> None:
    stream.response_ids.remove(IMAGE)
    stream.response_mask.pop(4)
    stream.response_logprobs.pop(4)


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (shift_mask, "loss mask"),
        (drop_mask_of_one_token, "loss mask"),
        (train_on_an_observation, "loss mask"),
        (swap_a_sampled_token, "loss mask"),
        (one_logprob_too_many, "lengths differ"),
        (one_mask_entry_too_few, "lengths differ"),
        (lose_a_placeholder, "placeholder runs"),
    ],
)
def test_planted_fault_is_caught(plant: Any, message: str) -> None:
    stream = example()
    plant(stream)
    with pytest.raises(InvariantError, match=message):
        check_invariants(stream, IMAGE, [2, 2, 2, 2])


@pytest.mark.parametrize("tokens_per_image", [[2, 2, 2], [2, 2, 2, 2, 2], [2, 2, 4, 2]])
def test_picture_dropped_added_or_of_another_size_is_caught(tokens_per_image: list[int]) -> None:
    with pytest.raises(InvariantError, match="placeholder runs"):
        check_invariants(example(), IMAGE, tokens_per_image)


def test_images_of_two_sizes_in_the_wrong_order_are_caught() -> None:
    stream = empty_stream()
    stream.start([Message("user", (picture(side=2), picture(side=4)))])
    stream.append_turn(ids("aE"), [-0.1, -0.2])
    assert letters(stream.prompt_ids) == "ppIIpIIIIp"
    check_invariants(stream, IMAGE, [2, 4])
    with pytest.raises(InvariantError, match=r"placeholder runs \[2, 4\] differ .* \[4, 2\]"):
        check_invariants(stream, IMAGE, [4, 2])


def test_a_sampled_placeholder_of_a_video_is_caught() -> None:
    """The model's positions would look for the video."""
    stream = empty_stream()
    stream.start([Message("user", ("look", picture()))])
    stream.append_turn([*ids("a"), len(LETTERS), *ids("aE")], [-0.1] * 4)
    check_invariants(stream, IMAGE, [2])
    with pytest.raises(InvariantError, match="1 placeholders of videos"):
        check_invariants(stream, IMAGE, [2], video_token_id=len(LETTERS))


def test_placeholder_runs() -> None:
    assert placeholder_runs(ids("pIIpIpIII"), IMAGE) == [2, 1, 3]
    assert placeholder_runs([], IMAGE) == []


# -------------------------------------------------------------------------------------------------------------- budget


def budget(stream: TokenStream, **limits: int) -> TokenBudget:
    defaults: dict[str, Any] = {"prompt_length": 100, "response_length": 100}
    tokens = RolloutTokens(stream.counter, END)
    tokens.current = stream
    return TokenBudget(tokens, **{**defaults, **limits})


def test_budget_counts_expanded_pictures() -> None:
    prompt = [Message("user", ("look", picture(), picture()))]  # pp IIp IIp: 8 tokens
    assert budget(empty_stream(), prompt_length=8).refuses_prompt(prompt) is None
    assert budget(empty_stream(), prompt_length=7).refuses_prompt(prompt) is StopReason.PROMPT_BUDGET


def test_budget_keeps_room_for_the_end_of_turn_and_one_token() -> None:
    stream = example()  # 26 response tokens; an observation of one picture takes E n oIIo gg, and one to answer with
    used = len(stream.response_ids)
    assert budget(stream, response_length=used + 9).refuses_observation((picture(),)) is None
    refused = budget(stream, response_length=used + 8).refuses_observation((picture(),))
    assert refused is StopReason.RESPONSE_BUDGET


def test_budget_limits_pictures() -> None:
    stream = example()
    assert budget(stream, max_images=5).refuses_observation((picture(),)) is None
    assert budget(stream, max_images=5).refuses_observation((picture(), picture())) is StopReason.IMAGE_BUDGET
    prompt = [Message("user", (picture(), picture()))]
    assert budget(empty_stream(), max_images=1).refuses_prompt(prompt) is StopReason.IMAGE_BUDGET


def test_a_request_of_its_own_takes_as_many_pictures_and_tokens_as_the_engine() -> None:
    asked = [Message("user", (picture(), picture()))]  # pp IIp IIp: 8 tokens
    used = example()  # whose 26 response tokens do not count: the request is no part of the sequence
    assert budget(used, max_images=2).tokens_detached(asked) == 100
    assert budget(used, max_images=1).tokens_detached(asked) == 0
    assert budget(used, prompt_length=5, response_length=4).tokens_detached(asked) == 1
    assert budget(used, prompt_length=5, response_length=3).tokens_detached(asked) == 0


def test_chat_message_keeps_reading_order() -> None:
    message = to_chat_message(Message("user", ("frame 1: ", picture(), "\nframe 2: ", ImagePart(picture().record))))
    assert [item["type"] for item in message["content"]] == ["text", "image", "text", "image"]
