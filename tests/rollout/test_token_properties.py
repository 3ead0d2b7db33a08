"""Random scripted rollouts against the model's own processor: every invariant of a finished rollout holds."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from examples.tiny_models.tiny_model import Architecture
from tests.turns.framethinker import answer, choose, get
from tests.verl_plugin.harness import (
    LARGE_PIXELS,
    MODELS,
    Rollout,
    ScriptedServer,
    Unended,
    model_dir,
    processor,
    run_loop,
    tokenizer,
    video,
)
from verl_video_tools.core.types import IMAGE_MARK, StopReason
from verl_video_tools.rollout.tokens import placeholder_runs

NUM_FRAMES = 200

frame_numbers = st.integers(0, NUM_FRAMES + 5)
valid_calls = st.one_of(
    st.builds(lambda start, length: choose(start, start + length), st.integers(0, 150), st.integers(9, 50)),
    st.builds(lambda seconds: get(f"0:{seconds:02d}"), st.integers(0, 20)),
)
# A line break at the beginning would join that of the turn's header into one token where the whole is encoded as text.
any_text = st.text(st.characters(codec="utf-8"), max_size=40).filter(
    lambda text: "<|" not in text and not re.match(r"\s*[\r\n]", text)
)
other_turns = st.one_of(
    st.builds(choose, frame_numbers, frame_numbers),  # reversed, too short, out of range
    st.builds(answer, st.sampled_from("ABCD")),
    any_text,
    any_text.map(lambda text: text + answer("A")),
)
# Some turns end without an end token, as after a stop string. No engine ends one without any token.
calls, others = (
    st.builds(lambda make, text: make(text), st.sampled_from([str, str, Unended]), texts).filter(
        lambda turn: turn != Unended("")
    )
    for texts in (valid_calls, other_turns)
)
# Some calls that can be carried out, then anything. Hypothesis favours what stands first, so the longest scripts do.
# After five turns the method ends every rollout.
scripts = st.sampled_from([4, 3, 2, 1, 0]).flatmap(
    lambda count: st.tuples(*[calls] * count, *[others] * (5 - count)).map(list)
)


@cache
def model(folder: str) -> Any:
    """Without weights: positions follow from the configuration."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    with torch.device("meta"):
        return AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder))


def conversation(rollout: Rollout) -> list[dict[str, Any]]:
    """The whole exchange as chat messages, written here from the record and independently of the loop."""

    def parts(text: str) -> list[dict[str, str]]:
        items: list[dict[str, str]] = []
        for number, piece in enumerate(text.split(IMAGE_MARK)):
            items += [{"type": "image"}] if number else []
            items += [{"type": "text", "text": piece}] if piece else []
        return items

    trajectory = rollout.trajectory
    image_id = processor(rollout.family).image_token_id
    prompt_text = tokenizer(rollout.family).decode([t for t in rollout.output.prompt_ids if t != image_id])
    prompt_text = prompt_text.replace("<|vision_start|><|vision_end|>", IMAGE_MARK)
    system, user = (block.split("\n", 1)[1] for block in prompt_text.split("<|im_end|>\n")[:2])
    messages = [{"role": "system", "content": parts(system)}, {"role": "user", "content": parts(user)}]
    for turn in trajectory.turns:
        messages.append({"role": "assistant", "content": [{"type": "text", "text": turn.text}]})
        if turn.observation is not None:
            messages.append({"role": "user", "content": parts(turn.observation)})
    return messages


@pytest.mark.slow
@pytest.mark.usefixtures("vocabulary")
@pytest.mark.parametrize(("vocabulary", "family"), MODELS, indirect=["vocabulary"])
@given(
    script=scripts,
    response_length=st.sampled_from([4096, 4096, 4096, 4096, 250, 40]),
    max_turn_tokens=st.sampled_from([8192, 8192, 8192, 8192, 20]),
    max_images=st.sampled_from([None, None, 16]),
    frame_size=st.sampled_from([(96, 64), (56, 56), (64, 120)]),
    bounds=st.sampled_from([{}, {}, LARGE_PIXELS]),
)
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_invariants_of_random_rollouts(
    family: Architecture,
    script: list[str | Unended],
    response_length: int,
    max_turn_tokens: int,
    max_images: int | None,
    frame_size: tuple[int, int],
    bounds: dict[str, int],
) -> None:
    server = ScriptedServer(script, family)
    rollout = asyncio.run(
        run_loop(
            [],
            server=server,
            video_path=video(NUM_FRAMES, width=frame_size[0], height=frame_size[1]),
            response_length=response_length,
            max_images=max_images,
            method_fields={"max_turn_tokens": max_turn_tokens},
            mm_processor_kwargs=bounds,
            family=family,
        )
    )
    output, trajectory = rollout.output, rollout.trajectory
    event(f"stop reason {trajectory.stop_reason}")  # pytest --hypothesis-show-statistics
    event(f"{len(trajectory.executed_calls())} executed calls")
    assert trajectory.flags == []
    assert trajectory.stop_reason not in (None, StopReason.VIDEO_ERROR, StopReason.ABORTED)

    # Lengths, and the mask against what the server returned.
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs or [])
    assert len(output.response_ids) <= response_length
    kept = [token for token, keep in zip(output.response_ids, output.response_mask, strict=True) if keep]
    assert kept == [token for turn_ids in server.returned for token in turn_ids]
    assert output.response_mask[-1] == 1
    assert len(rollout.images) <= (max_images or 1000)

    # Pictures: what was shown is what the record says, in order, and what the placeholders stand for.
    records = trajectory.initial_frames + [frame for call in trajectory.executed_calls() for frame in call.frames]
    assert [picture.size for picture in rollout.images] == [(record.width, record.height) for record in records]
    messages = conversation(rollout)
    processor_ = processor(family)
    rendered = processor_.apply_chat_template(messages, tokenize=False)
    full = processor_(text=[rendered], images=rollout.images, return_tensors="pt", **bounds)
    merge = processor_.image_processor.merge_size**2
    runs = placeholder_runs(rollout.ids, processor_.image_token_id)
    assert runs == [int(grid.prod()) // merge for grid in full["image_grid_thw"]]

    # The processor must not resize what the method sized: 14 x 14 or 16 x 16 pixels make one patch.
    patch = 14 if family == "qwen2_5_vl" else 16
    assert [(int(h) * patch, int(w) * patch) for _, h, w in full["image_grid_thw"]] == [
        (record.height, record.width) for record in records
    ]

    # Tokens: one render of the whole conversation gives the same ids, up to the end of the last turn.
    rendered_ids = full["input_ids"][0].tolist()
    assert rendered_ids[: len(rollout.ids)] == rollout.ids or was_cut_inside_a_word(rollout)
    if not was_cut_inside_a_word(rollout):
        assert tokenizer(family).decode(rendered_ids[len(rollout.ids) :]) in ("\n", "<|im_end|>\n")

    # Positions: verl's code on our output against the model itself on the same ids.
    inputs, positions_4L = rollout.training_tensors()
    expected_31L, _ = model(model_dir(family)).model.get_rope_index(
        input_ids=torch.tensor([rollout.ids]),
        mm_token_type_ids=(torch.tensor([rollout.ids]) == processor_.image_token_id).long(),
        image_grid_thw=full["image_grid_thw"],
    )
    assert torch.equal(positions_4L[0], torch.arange(len(rollout.ids)))
    assert torch.equal(positions_4L[1:], expected_31L[:, 0])
    assert torch.equal(inputs["image_grid_thw"], full["image_grid_thw"])
    assert torch.equal(inputs["pixel_values"], full["pixel_values"])


def was_cut_inside_a_word(rollout: Rollout) -> bool:
    """A cut turn may end on part of a word or of a character; its text then has other tokens than were sampled."""
    last = rollout.server.returned[-1]
    encoder = tokenizer(rollout.family)
    return rollout.trajectory.turns[-1].truncated and encoder.encode(encoder.decode(last)) != last
