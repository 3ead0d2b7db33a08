"""A measured prompt is that of a real rollout: same tokens, same verdict of the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.dry_run.conftest import DryRunOf
from verl_video_tools.core.types import RolloutLimits, Sample
from verl_video_tools.dry_run.first_frames import PromptMeter, decode_rows, measure_rows, turn_tokens
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.tokens import TokenStream
from verl_video_tools.verl_plugin.planned_run import RunModel, compose_run, load_run_model

ROOMY = RolloutLimits(100_000, 100_000, 1000)


@pytest.fixture(scope="session")
def model(recipe_options: Callable[[str], list[str]]) -> RunModel:
    config = compose_run("grpo", recipe_options("framethinker_grpo"))
    return load_run_model(config.actor_rollout_ref.model, config.data)


def real_prompt(row: dict[str, Any], method: Any, model: RunModel) -> TokenStream:
    stream = TokenStream(model.tokens.counter)
    messages = asyncio.run(Episode(method, Sample.from_row(row), model.tokens.envelope).start())
    assert messages is not None
    stream.start(messages)
    return stream


@pytest.mark.slow
def test_tokens_and_images_are_those_of_a_rollout(model: RunModel, rows: list[dict[str, Any]]) -> None:
    method = get_method("framethinker")
    meter = PromptMeter(model, ROOMY)
    prompts = asyncio.run(measure_rows(meter, list(enumerate(rows[:6])), lambda name: [method], 60.0))
    for row, prompt in zip(rows[:6], prompts, strict=True):
        stream = real_prompt(row, method, model)
        assert (prompt.tokens, prompt.images) == (len(stream.prompt_ids), len(stream.images))
        assert prompt.problem == "" and prompt.info is not None and prompt.decode_seconds is None


def test_the_limit_is_exact(model: RunModel, rows: list[dict[str, Any]]) -> None:
    method, sample = get_method("framethinker"), Sample.from_row(rows[0])
    stream = real_prompt(rows[0], method, model)
    length, images = len(stream.prompt_ids), len(stream.images)
    for less_tokens, less_images, words in ((0, 0, ""), (1, 0, f"{length:,} tokens"), (0, 1, f"{images:,} images")):
        meter = PromptMeter(model, RolloutLimits(length - less_tokens, 1000, images - less_images))
        problem = asyncio.run(meter.measure(0, sample, [method])).problem
        assert words in problem and bool(problem) == bool(words)


def test_of_a_group_the_most_expensive_prompt_counts(model: RunModel, rows: list[dict[str, Any]]) -> None:
    method, sample = get_method("framemind"), Sample.from_row(rows[0])
    group = [method.for_session(number, 8, validate=False) for number in range(8)]
    meter = PromptMeter(model, ROOMY)
    each = [asyncio.run(meter.measure(0, sample, [member])).tokens for member in group]
    assert len(set(each)) > 1
    assert asyncio.run(meter.measure(0, sample, group)).tokens == max(each)


def test_time_is_bounded_but_one_row_is_always_looked_at(model: RunModel, rows: list[dict[str, Any]]) -> None:
    method = get_method("framethinker")
    meter = PromptMeter(model, ROOMY)

    async def numbers(open_seconds: float, decode_seconds: float) -> tuple[list[int], list[int]]:
        prompts = await measure_rows(meter, list(enumerate(rows[:5])), lambda name: [method], open_seconds)
        decoded = await decode_rows(meter, prompts, decode_seconds)
        assert [prompt.number for prompt in decoded] == [prompt.number for prompt in prompts]
        return [prompt.number for prompt in prompts], [prompt.number for prompt in decoded if prompt.decode_seconds]

    assert asyncio.run(numbers(60.0, 60.0)) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    opened, decoded = asyncio.run(numbers(60.0, -1.0))
    assert opened == [0, 1, 2, 3, 4] and len(decoded) == 1
    opened, decoded = asyncio.run(numbers(-1.0, 60.0))
    assert len(opened) == 1 and decoded == opened


def test_a_processor_that_counts_otherwise_is_told(
    model: RunModel, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "verl_video_tools.dry_run.first_frames.processor_token_counts", lambda processor, images, options: [1]
    )
    method, meter = get_method("framethinker"), PromptMeter(model, ROOMY)
    prompt = asyncio.run(meter.measure(0, Sample.from_row(rows[0]), [method]))
    assert "placeholder runs" in asyncio.run(meter.decode(prompt)).problem


@pytest.mark.parametrize(("response", "tokens"), [(768, 48), (16_384, 512), (100, 16)])
def test_length_of_a_turn(response: int, tokens: int) -> None:
    assert turn_tokens(RolloutLimits(1, response, 1)) == tokens


@pytest.mark.slow
def test_too_short_a_response_holds_no_call(dry_run: DryRunOf) -> None:
    calls = dry_run("data.max_response_length=60", "actor_rollout_ref.rollout.max_model_len=2048")["training calls"]
    assert calls.status == "warning" and "no call of the largest size fits" in calls.detail
