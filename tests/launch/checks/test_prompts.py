"""A measured prompt is that of a real rollout: same tokens, same verdict of the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from verl_video_tools.core.errors import VideoError
from verl_video_tools.core.types import Sample
from verl_video_tools.launch.checks.rows import PromptMeter, measure_rows
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.tokens import TokenStream
from verl_video_tools.verl_plugin.model_tokens import RunModel, load_run_model
from verl_video_tools.verl_plugin.run_checks import compose_run

ROOMY = (100_000, 100_000, 1000)


@pytest.fixture(scope="session")
def model(recipe_options: Callable[[str], list[str]]) -> RunModel:
    config = compose_run("grpo", recipe_options("framethinker_grpo"))
    return load_run_model(config.actor_rollout_ref.model, config.data)


def real_prompt(row: dict[str, Any], method: Any, model: RunModel) -> TokenStream:
    stream = TokenStream(model.counter)
    messages = asyncio.run(Episode(method, Sample.from_row(row), model.envelope).start())
    assert messages is not None
    stream.start(messages)
    return stream


@pytest.mark.slow
def test_tokens_and_images_are_those_of_a_rollout(model: RunModel, rows: list[dict[str, Any]]) -> None:
    method = get_method("framethinker")
    labelled = {str(number): row for number, row in enumerate(rows[:6])}
    groups = {label: [method] for label in labelled}
    for decodes in (False, True):
        meter = PromptMeter(model, *ROOMY, decodes=decodes)
        prompts = asyncio.run(measure_rows(meter, labelled, groups, 60.0))
        for label, prompt in prompts.items():
            stream = real_prompt(labelled[label], method, model)
            assert (prompt.tokens, prompt.images) == (len(stream.prompt_ids), len(stream.images))
            assert prompt.problem == ""
        assert list(prompts) == list(labelled)


def test_the_limit_is_exact(model: RunModel, rows: list[dict[str, Any]]) -> None:
    method, sample = get_method("framethinker"), Sample.from_row(rows[0])
    stream = real_prompt(rows[0], method, model)
    length, images = len(stream.prompt_ids), len(stream.images)
    for less_tokens, less_images, words in ((0, 0, ""), (1, 0, f"{length:,} tokens"), (0, 1, f"{images:,} images")):
        meter = PromptMeter(model, length - less_tokens, 1000, images - less_images)
        problem = asyncio.run(meter.measure(sample, [method])).problem
        assert words in problem and bool(problem) == bool(words)


def test_of_a_group_the_most_expensive_prompt_counts(model: RunModel, rows: list[dict[str, Any]]) -> None:
    method, sample = get_method("framemind"), Sample.from_row(rows[0])
    group = [method.for_session(number, 8, validate=False) for number in range(8)]
    meter = PromptMeter(model, *ROOMY)
    each = [asyncio.run(meter.measure(sample, [member])).tokens for member in group]
    assert len(set(each)) > 1
    assert asyncio.run(meter.measure(sample, group)).tokens == max(each)


def test_time_is_bounded_but_one_row_is_always_measured(model: RunModel, rows: list[dict[str, Any]]) -> None:
    labelled = {str(number): row for number, row in enumerate(rows[:5])}
    groups = {label: [get_method("framethinker")] for label in labelled}
    assert len(asyncio.run(measure_rows(PromptMeter(model, *ROOMY), labelled, groups, -1.0))) == 1


def test_initial_frames_that_do_not_decode(
    model: RunModel, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise VideoError("broken.mp4: no frame can be decoded")

    monkeypatch.setattr("verl_video_tools.rollout.observation.decode_frames", fail)
    method, sample = get_method("framethinker"), Sample.from_row(rows[0])
    assert not asyncio.run(PromptMeter(model, *ROOMY).measure(sample, [method])).problem
    assert "broken.mp4" in asyncio.run(PromptMeter(model, *ROOMY, decodes=True).measure(sample, [method])).problem
