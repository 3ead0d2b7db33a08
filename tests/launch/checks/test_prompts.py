"""A measured prompt is that of a real rollout: same tokens, same verdict of the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.core.types import Sample
from verl_video_tools.launch.checks.rows import PromptMeter, decode_prompts, measure_rows
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.tokens import TokenStream
from verl_video_tools.verl_plugin.planned_run import RunModel, compose_run, load_run_model

ROOMY = (100_000, 100_000, 1000)


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
    meter = PromptMeter(model, *ROOMY)
    labelled = {str(number): row for number, row in enumerate(rows[:6])}
    prompts = asyncio.run(measure_rows(meter, labelled, {label: [method] for label in labelled}, 60.0))
    for row, prompt in zip(rows[:6], prompts, strict=True):
        stream = real_prompt(row, method, model)
        assert (prompt.tokens, prompt.images) == (len(stream.prompt_ids), len(stream.images))
        assert prompt.problem == ""


def test_the_limit_is_exact(model: RunModel, rows: list[dict[str, Any]]) -> None:
    method, sample = get_method("framethinker"), Sample.from_row(rows[0])
    stream = real_prompt(rows[0], method, model)
    length, images = len(stream.prompt_ids), len(stream.images)
    for less_tokens, less_images, words in ((0, 0, ""), (1, 0, f"{length:,} tokens"), (0, 1, f"{images:,} images")):
        meter = PromptMeter(model, length - less_tokens, 1000, images - less_images)
        problem = asyncio.run(meter.measure("0", sample, [method])).problem
        assert words in problem and bool(problem) == bool(words)


def test_of_a_group_the_most_expensive_prompt_counts(model: RunModel, rows: list[dict[str, Any]]) -> None:
    method, sample = get_method("framemind"), Sample.from_row(rows[0])
    group = [method.for_session(number, 8, validate=False) for number in range(8)]
    meter = PromptMeter(model, *ROOMY)
    each = [asyncio.run(meter.measure("0", sample, [member])).tokens for member in group]
    assert len(set(each)) > 1
    assert asyncio.run(meter.measure("0", sample, group)).tokens == max(each)


def test_time_is_bounded_but_one_row_is_always_looked_at(model: RunModel, rows: list[dict[str, Any]]) -> None:
    labelled = {str(number): row for number, row in enumerate(rows[:5])}
    groups = {label: [get_method("framethinker")] for label in labelled}
    meter = PromptMeter(model, *ROOMY)

    async def labels(open_seconds: float, decode_seconds: float) -> tuple[list[str], list[tuple[str, str]]]:
        prompts = await measure_rows(meter, labelled, groups, open_seconds)
        return [prompt.label for prompt in prompts], await decode_prompts(meter, prompts, decode_seconds)

    assert asyncio.run(labels(60.0, 60.0)) == (list(labelled), [(label, "") for label in labelled])
    opened, decoded = asyncio.run(labels(60.0, -1.0))
    assert opened == list(labelled) and len(decoded) == 1
    opened, decoded = asyncio.run(labels(-1.0, 60.0))
    assert len(opened) == 1 and decoded == [(opened[0], "")]


def test_initial_frames_that_do_not_decode(model: RunModel, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """The file is gone after its prompt was measured."""
    video = tmp_path / "gone.mp4"
    video.write_bytes(Path(rows[0]["extra_info"]["video_path"]).read_bytes())
    row = {**rows[0], "extra_info": {**rows[0]["extra_info"], "video_path": str(video)}}
    meter = PromptMeter(model, *ROOMY)
    (prompt,) = asyncio.run(measure_rows(meter, {"0": row}, {"0": [get_method("framethinker")]}, 60.0))
    assert not prompt.problem
    video.unlink()
    ((label, problem),) = asyncio.run(decode_prompts(meter, [prompt], 60.0))
    assert label == "0" and str(video) in problem
