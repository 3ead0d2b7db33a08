"""LongVT through the token loop: several pictures and replies per turn, budgets, masks, positions."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from tests.verl_plugin.harness import Rollout, make_row, processor, run_loop, tokenizer, video
from verl_video_tools.config import config_path
from verl_video_tools.core.types import StopReason
from verl_video_tools.rollout.tokens import placeholder_runs
from verl_video_tools.verl_plugin.images import position_ids_4L

pytestmark = pytest.mark.usefixtures("vocabulary")

FIELDS = {"initial_frames": 8, "max_pixels": 3136}


def call(start: float, end: float) -> str:
    arguments = {"video_path": video(), "start_time": start, "end_time": end}
    payload = {"name": "crop_video", "arguments": arguments}
    return f"<tool_call>\n{json.dumps(payload)}\n</tool_call>"


def crop(start: float, end: float) -> str:
    return f"<think>there</think>\n{call(start, end)}"


ANSWER = "<think>seen</think><answer>B</answer>"


async def rollout(turns: list[str], **arguments: Any) -> Rollout:
    """On 20 seconds at 10 frames per second."""
    fields = {**FIELDS, **arguments.pop("method_fields", {})}
    return await run_loop(turns, method="longvt", method_fields=fields, **arguments)


def placeholders(result: Rollout) -> str:
    """Of a frame. The smallest that the released processor takes has twice the pixels of the tiny one's."""
    frame = result.images[-1]
    return "<|vision_start|>" + "<|image_pad|>" * (frame.width * frame.height // 28**2) + "<|vision_end|>"


async def test_mask_placeholders_and_positions() -> None:
    turns = [crop(5, 9) + call(12, 14), crop(18, 30), crop(15, 19), ANSWER]
    result = await rollout(turns)
    assert result.trajectory.stop_reason is StopReason.ANSWER
    assert result.trajectory.flags == []
    assert result.text_of(keep=1) == "".join(f"{turn}<|im_end|>" for turn in turns)
    assert len(result.images) == 8 + (4 + 2) + 4
    image_token = tokenizer().convert_tokens_to_ids("<|image_pad|>")
    inputs, positions_4L = result.training_tensors()
    grid = inputs["image_grid_thw"]
    assert placeholder_runs(result.ids, image_token) == (grid.prod(dim=1) // 4).tolist()
    masked = [
        token for token, keep in zip(result.output.response_ids, result.output.response_mask, strict=True) if keep
    ]
    assert image_token not in masked
    assert torch.equal(positions_4L, position_ids_4L(processor(), processor().image_token_id, result.ids, inputs))


async def test_one_reply_per_call_also_for_a_refused_one() -> None:
    result = await rollout([crop(5, 9) + call(12, 14), crop(18, 30), ANSWER])
    assert result.text_of(keep=0).count("<tool_response>") == 3
    assert "Error: out_of_range: " in result.text_of(keep=0)


async def test_observations_read_like_qwens_tool_messages() -> None:
    """Golden text of a whole context turn, as the chat templates of Qwen2.5 render two messages of role `tool`."""
    result = await rollout([crop(5, 7) + call(30, 31), ANSWER])
    picture = placeholders(result)
    assert result.text_of(keep=0) == (
        "\n<|im_start|>user\n"
        f"<tool_response>\n5.0s {picture}\n7.0s {picture}\n</tool_response>\n"
        "<tool_response>\nError: out_of_range: start_time 30 must be from 0 to below 20.00 seconds\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_published_reply_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the template for released checkpoints, section b.5: no line break between "user" and the tag. verl adds the
    one after the policy's own end of turn."""
    template = config_path("longvt-template").read_text(encoding="utf-8")
    for part in (processor(), tokenizer()):
        monkeypatch.setattr(part, "chat_template", template)
    result = await rollout([crop(5, 7), ANSWER], method_fields={"compat": "reference"})
    pictures = placeholders(result) * 2
    assert result.text_of(keep=0) == (
        f"\n<|im_start|>user<tool_response>\n{pictures}The tool executed successfully. Here are the processed result"
        "</tool_response><|im_end|><|im_start|>assistant\n"
    )
    prompt = tokenizer().decode(result.output.prompt_ids)
    assert prompt.startswith("<|im_start|>system\n") and "<|im_end|><|im_start|>user\n<|vision_start|>" in prompt
    assert result.trajectory.flags == [] and result.trajectory.stop_reason is StopReason.ANSWER


@pytest.mark.parametrize(("compat", "response_length"), [("strict", 150), ("reference", 100)])
async def test_a_crop_beyond_the_response_budget(compat: str, response_length: int) -> None:
    """No picture of it enters. As published the rollout ends there; else the model reads why and may crop less."""
    result = await rollout([crop(0, 20), ANSWER], response_length=response_length, method_fields={"compat": compat})
    (record,) = result.trajectory.calls()
    assert str(record.error).startswith("response_budget: ")
    assert record.frames == [] and len(result.images) == 8
    if compat == "reference":
        assert result.trajectory.stop_reason is StopReason.RESPONSE_BUDGET
        assert result.trajectory.turns[0].observation is None
        assert result.output.response_mask == [1] * len(result.server.returned[0])
    else:
        assert result.trajectory.stop_reason is StopReason.ANSWER
        assert "Error: response_budget: " in result.text_of(keep=0)
    assert len(result.output.response_ids) <= response_length


async def test_image_limit() -> None:
    result = await rollout([crop(0, 20), crop(1, 3), ANSWER], max_images=12)
    assert [call.ok for call in result.trajectory.calls()] == [False, True]
    assert len(result.images) == 10


async def test_the_published_cap_ends_the_rollout_after_its_reply() -> None:
    first = crop(1, 3) + "".join(call(start, start + 2) for start in (4, 8, 12, 16))
    result = await rollout([first], method_fields={"compat": "reference"})
    assert result.trajectory.stop_reason is StopReason.MAX_TURNS
    assert (result.trajectory.turns[0].observation or "").count("<image>") == 10
    assert len(result.server.requests) == 1
    assert result.output.response_mask[-1] == 1, "a rollout ends with a token of the policy"


async def test_broken_json() -> None:
    broken = '<think>there</think><tool_call>{"name": </tool_call>'
    assert (
        await rollout([broken], method_fields={"compat": "reference"})
    ).trajectory.stop_reason is StopReason.NO_ACTION
    assert (await rollout([broken, ANSWER])).trajectory.stop_reason is StopReason.ANSWER


async def test_a_row_of_its_own(tmp_path: Any) -> None:
    row = make_row(video())
    row["extra_info"]["video_segment"] = [5.0, 9.0]
    assert (await rollout([crop(5, 9), ANSWER], row=row)).trajectory.counts()["tool_frames"] == 4
