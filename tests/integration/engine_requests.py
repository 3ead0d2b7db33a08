"""A recorded training sequence beside the engine's requests that it comes from, and faults to plant in either.

A request is a line of the server's log (`instrumented_replica`): `prompt_ids`, `images` (names, by their pixels),
`token_ids` and `log_probs`. A fault changes copies of a sequence and of its requests, as a faulty agent loop would have
written them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from verl_video_tools.rollout.tokens import placeholder_runs

Request = dict[str, Any]
Requests = Mapping[tuple[int, ...], Sequence[Request]]
"""By their prompts."""
Tokens = dict[str, Any]
"""A line's only sequence: `prompts`, `responses`, `response_mask`, `rollout_log_probs`."""


def by_prompt(requests: Iterable[Request]) -> Requests:
    found: dict[tuple[int, ...], list[Request]] = {}
    for request in requests:
        found.setdefault(tuple(request["prompt_ids"]), []).append(request)
    return found


def sampled_spans(tokens: Tokens) -> list[tuple[int, int]]:
    """Begin and end of each run of trained tokens, counted from the start of the prompt."""
    edges = np.diff(tokens["response_mask"], prepend=0, append=0).nonzero()[0] + len(tokens["prompts"])
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def differences(
    tokens: Tokens,
    requests: Requests,
    num_turns: int,
    images: Sequence[str],
    image_id: int,
) -> set[str]:
    """What of a sequence is not as the engine was asked for it and returned it; empty if all is.

    Args:
        images: names of the images that the rollout's record says were shown, in order.

    Returns:
        `turns`: another number of trained spans than turns; `placeholder`: a trained token stands for an image;
        `tokens`: no request has the ids before a span and was answered with the span; of those that do, none has the
        `images` or the `log_probs`.
    """
    ids = tokens["prompts"] + tokens["responses"]
    log_probs = [0.0] * len(tokens["prompts"]) + tokens["rollout_log_probs"]
    spans = sampled_spans(tokens)
    found = set() if len(spans) == num_turns else {"turns"}
    for begin, end in spans:
        if image_id in ids[begin:end]:
            found.add("placeholder")
        answers = [each for each in requests.get(tuple(ids[:begin]), ()) if each["token_ids"] == ids[begin:end]]
        if not answers:
            found.add("tokens")
            continue
        shown = list(images[: len(placeholder_runs(ids[:begin], image_id))])
        if not any(each["images"] == shown for each in answers):
            found.add("images")
        if not any(np.allclose(each["log_probs"], log_probs[begin:end], rtol=0, atol=1e-6) for each in answers):
            found.add("log_probs")
    return found


def mask_off_by_one(tokens: Tokens, requests: Sequence[Request], processor: Any) -> None:
    """The loss mask is shifted right by one token."""
    tokens["response_mask"] = [0, *tokens["response_mask"][:-1]]


def retokenised_text(tokens: Tokens, requests: Sequence[Request], processor: Any) -> None:
    """The loop has kept the sampled text as other tokens: one of them is spelt by its characters."""
    tokenizer = processor.tokenizer
    for i, (token, keep) in enumerate(zip(tokens["responses"], tokens["response_mask"], strict=True)):
        text = tokenizer.decode([token]) if keep and token not in tokenizer.all_special_ids else ""
        pieces = [piece for character in text for piece in tokenizer.encode(character, add_special_tokens=False)]
        if len(pieces) > 1 and tokenizer.decode(pieces) == text:
            tokens["responses"][i : i + 1] = pieces
            for name in ("response_mask", "rollout_log_probs"):
                tokens[name][i : i + 1] = [tokens[name][i]] * len(pieces)
            return
    raise AssertionError("no sampled token has several characters")


def missing_image(tokens: Tokens, requests: Sequence[Request], processor: Any) -> None:
    """The engine did not get the last image and its placeholders; the row has both."""
    for request in requests:
        ids = request["prompt_ids"]
        stop = len(ids) - ids[::-1].index(processor.image_token_id)
        del ids[stop - placeholder_runs(ids, processor.image_token_id)[-1] : stop]
        request["images"].pop()


def wrong_order(tokens: Tokens, requests: Sequence[Request], processor: Any) -> None:
    """The engine got two images in swapped order."""
    for request in requests:
        names = request["images"]
        other = next(i for i, name in enumerate(names) if name != names[0])
        names[0], names[other] = names[other], names[0]


def sampled_placeholder(tokens: Tokens, requests: Sequence[Request], processor: Any) -> None:
    """The engine sampled an image placeholder in the last turn."""
    begin, _ = sampled_spans(tokens)[-1]
    tokens["responses"][begin - len(tokens["prompts"])] = processor.image_token_id
    for request in requests:
        if len(request["prompt_ids"]) == begin:
            request["token_ids"][0] = processor.image_token_id


def log_probs_off_by_one(tokens: Tokens, requests: Sequence[Request], processor: Any) -> None:
    """The log-probabilities are those of the next tokens."""
    tokens["rollout_log_probs"] = [*tokens["rollout_log_probs"][1:], 0.0]


NOTICED = {
    mask_off_by_one: "tokens",
    retokenised_text: "tokens",
    missing_image: "tokens",
    wrong_order: "images",
    sampled_placeholder: "placeholder",
    log_probs_off_by_one: "log_probs",
}
"""Faults, and which of the `differences` shows each."""
