"""Tokens of a rollout of each method with the vocabularies of Qwen2.5-VL and Qwen3-VL.

    python -m tests.recorded.released_rollouts            # writes data/released_rollouts, a file per rollout

A file holds the sequence in pieces, a line break or a change of the mask after each. Of a piece there is its mask (`p`
in the prompt, `1` sampled and trained on, `0` neither), the text of each token, and below the ids. `*64` stands behind
the token of an image that takes 64. The first line counts images, initial ones and those of each call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import groupby
from unittest import mock

from tests.recorded.record import write
from tests.turns.every_method import CASES, Case, Scattered
from tests.verl_plugin.harness import Rollout, Unended, processor, run_loop, tokenizer, using_vocabulary
from verl_video_tools.methods import get_method
from verl_video_tools.synthetic import FAMILIES, Family

FOLDER = "released_rollouts"
TOOL_CASES = [case for case in CASES if case.looks]


def rollout_lines(case: Case, family: Family) -> list[str]:
    """The lines of the method's file."""
    with using_vocabulary("released"):
        return list(_lines(asyncio.run(roll_out(case, family)), case, family))


async def roll_out(case: Case, family: Family) -> Rollout:
    method = get_method(case.method)
    looks = [Unended(look) if method.stop else look for look in case.looks]
    with mock.patch("verl_video_tools.verl_plugin.retrieval_actor.connect", lambda config: Scattered()):
        return await run_loop(
            [*looks, case.answer],
            method=case.method,
            method_fields=case.fields,
            retrieval_fields={"model": "unused"} if method.searches else None,
            prompt_length=16_384,
            response_length=16_384,
            family=family,
        )


def _lines(rollout: Rollout, case: Case, family: Family) -> Iterator[str]:
    trajectory = rollout.trajectory
    num_images = [len(trajectory.initial_frames), *(len(call.frames) for call in trajectory.calls())]
    yield f"# {case.method}, {family}: images {num_images}, {len(rollout.ids)} tokens, {trajectory.stop_reason}"
    masks = ["p"] * len(rollout.output.prompt_ids) + [str(mask) for mask in rollout.output.response_mask]
    texts = {token: tokenizer(family).decode([token]) for token in rollout.ids}
    start = 0
    for position, token in enumerate(rollout.ids):
        if "\n" in texts[token] or masks[position + 1 : position + 2] != [masks[position]]:
            runs = _runs(rollout.ids[start : position + 1], processor(family).image_token_id)
            yield f"{masks[position]} " + " ".join(json.dumps(texts[run], ensure_ascii=False) + n for run, n in runs)
            yield "  " + " ".join(f"{run}{n}" for run, n in runs)
            start = position + 1


def _runs(ids: list[int], image_token_id: int) -> list[tuple[int, str]]:
    """Tokens with nothing behind them, and one token for each image, with their number."""
    runs: list[tuple[int, str]] = []
    for token, repeated in groupby(ids):
        count = len(list(repeated))
        runs += [(token, f"*{count}")] if token == image_token_id else [(token, "")] * count
    return runs


def file_name(case: Case, family: Family) -> str:
    return f"{FOLDER}/{case.method}_{family}.txt"


def main() -> None:
    for case in TOOL_CASES:
        for family in FAMILIES:
            write(file_name(case, family), rollout_lines(case, family))


if __name__ == "__main__":
    main()
