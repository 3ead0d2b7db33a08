"""VideoZoomer in the real token loop with a scripted server: stop string, mask, budgets, positions."""

from __future__ import annotations

import pytest
import torch
from verl.utils import hf_tokenizer

from tests.verl_plugin import harness
from tests.verl_plugin.harness import Unended, processor, run_loop, tokenizer
from verl_video_tools.core.types import StopReason
from verl_video_tools.rollout.tokens import placeholder_runs
from verl_video_tools.verl_plugin.images import position_ids_4L

pytestmark = pytest.mark.usefixtures("vocabulary")

END = "<|im_end|>"
RIGHT = "<think>so</think><answer>B</answer>"


def zoom(start: float, end: float, fps: float = 2) -> Unended:
    """A request as the engine ends it: at the stop string, without an end token."""
    return Unended(f'<think>so</think><video_zoom>{{"segment": [{start}, {end}], "fps": {fps}}}</video_zoom>')


async def test_two_zooms() -> None:
    rollout = await run_loop([zoom(4, 6), zoom(8, 10), RIGHT], method="videozoomer")
    assert rollout.trajectory.stop_reason is StopReason.ANSWER
    frames = [len(rollout.trajectory.initial_frames), *(len(call.frames) for call in rollout.trajectory.calls())]
    assert frames == [10, 4, 4]
    assert [request["num_images"] for request in rollout.server.requests] == [10, 14, 18]
    assert len(rollout.images) == 18
    mask = rollout.output.response_mask
    starts = [i for i, keep in enumerate(mask) if keep and (i == 0 or not mask[i - 1])]
    assert len(starts) == 3
    assert rollout.trajectory.flags == []


async def test_the_engine_is_told_to_stop_after_a_request() -> None:
    rollout = await run_loop([zoom(4, 6), RIGHT], method="videozoomer")
    for request in rollout.server.requests:
        assert request["sampling_params"]["stop"] == ["</video_zoom>"]
        assert request["sampling_params"]["include_stop_str_in_output"] is True
        assert request["sampling_params"]["max_tokens"] <= 4096


@pytest.mark.parametrize("last", ["></", ">.", ">The", ">}"])
@pytest.mark.parametrize("opened", [False, True])
async def test_a_turn_is_read_up_to_its_stop_string(last: str, opened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In real vocabularies its last character and what follows are one token, which the engine gives whole."""
    if opened:
        harness.open_reasoning(monkeypatch)
    merged = hf_tokenizer(harness.model_dir())
    merged.chat_template = tokenizer().chat_template
    merged.add_tokens([last])
    monkeypatch.setattr(harness, "tokenizer", lambda family="qwen2_5_vl": merged)
    thinks = f"as it is</think>{zoom(4, 6).text}" if opened else zoom(4, 6).text
    rollout = await run_loop([Unended(thinks.removesuffix(">") + last), RIGHT], method="videozoomer")
    first, _ = rollout.trajectory.turns
    assert (first.text, first.well_formed) == (zoom(4, 6).text, True)
    assert rollout.server.returned[0][-1] == merged.convert_tokens_to_ids(last)
    assert rollout.output.response_ids[: len(rollout.server.returned[0])] == rollout.server.returned[0]
    assert rollout.trajectory.stop_reason is StopReason.ANSWER


async def test_mask_and_placeholders() -> None:
    """A turn that the stop string ended gets one end of turn, with mask 0; the answer's own one is sampled."""
    rollout = await run_loop([zoom(4, 6), RIGHT], method="videozoomer")
    assert rollout.text_of(1) == "".join((zoom(4, 6).text, RIGHT, END))
    context = rollout.text_of(0)
    assert context.startswith(f"{END}\n<|im_start|>user\n<tool_response>\n")
    assert context.count(END) == 2  # of the turn and of the observation
    image_id = tokenizer().convert_tokens_to_ids("<|image_pad|>")
    grids = rollout.training_tensors()[0]["image_grid_thw"]
    assert placeholder_runs(rollout.ids, image_id) == [int(grid.prod()) // 4 for grid in grids]


async def test_four_zooms_fit_and_a_fifth_is_refused() -> None:
    rollout = await run_loop([zoom(4, 12)] * 5, method="videozoomer", response_length=16_384)
    assert rollout.trajectory.stop_reason is StopReason.MAX_TURNS
    assert rollout.text_of(0).count("No zoom is left") == 1
    assert len(rollout.images) == 10 + 4 * 16


async def test_images_beyond_the_limit_are_refused_and_the_rollout_goes_on() -> None:
    rollout = await run_loop([zoom(4, 12), zoom(4, 6), RIGHT], method="videozoomer", max_images=14)
    first, second = rollout.trajectory.calls()
    assert str(first.error).startswith("image_budget: ")
    assert second.ok and len(rollout.images) == 14
    assert "Error: image_budget: " in rollout.text_of(0)
    assert rollout.trajectory.stop_reason is StopReason.ANSWER


async def test_the_largest_response_that_the_budget_allows() -> None:
    """Frames that no longer fit are answered with an error while that fits; then the rollout ends."""
    whole = await run_loop([zoom(4, 12), RIGHT], method="videozoomer")
    needed = len(whole.output.response_ids)
    rollout = await run_loop([zoom(4, 12), RIGHT], method="videozoomer", response_length=needed - 100)
    assert str(rollout.trajectory.calls()[0].error).startswith("response_budget: ")
    assert rollout.trajectory.stop_reason is StopReason.ANSWER
    tiny = await run_loop([zoom(4, 12), RIGHT], method="videozoomer", response_length=80)
    assert tiny.trajectory.stop_reason is StopReason.RESPONSE_BUDGET


async def test_a_placeholder_that_the_policy_writes_flags_the_rollout() -> None:
    rollout = await run_loop(["<think><|image_pad|></think><answer>B</answer>"], method="videozoomer")
    assert rollout.trajectory.flags == ["invariant"]
    assert rollout.output.response_mask == [0]


def test_positions_of_one_picture() -> None:
    ids = tokenizer().encode("B<|vision_start|><|image_pad|><|image_pad|><|image_pad|><|image_pad|><|vision_end|>B")
    positions_4L = position_ids_4L(
        processor(), processor().image_token_id, ids, {"image_grid_thw": torch.tensor([[1, 4, 4]])}
    )
    assert positions_4L[1:].tolist() == [
        [0, 1, 2, 2, 2, 2, 4, 5],
        [0, 1, 2, 2, 3, 3, 4, 5],
        [0, 1, 2, 3, 2, 3, 4, 5],
    ]


async def test_positions_are_the_models_own_over_the_whole_rollout() -> None:
    """Also for pictures in observations, which the published code numbers one by one."""
    rollout = await run_loop([zoom(4, 6), RIGHT], method="videozoomer")
    inputs, positions_4L = rollout.training_tensors()
    assert torch.equal(positions_4L, position_ids_4L(processor(), processor().image_token_id, rollout.ids, inputs))
    observation = len(rollout.output.prompt_ids)
    assert not torch.equal(positions_4L[1, observation:], positions_4L[2, observation:])
