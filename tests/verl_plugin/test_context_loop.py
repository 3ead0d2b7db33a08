"""Rollouts of several training sequences: what each turn is sampled from and trained on, and what verl stores."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.v1 import agent_loop_tq

from tests.context_method import NAME, NOTE, FrameThinkerWithContext
from tests.turns.framethinker import answer, choose, get
from tests.verl_plugin.harness import (
    LARGE_PIXELS,
    QUESTION,
    Rollout,
    ScriptedServer,
    Spelt,
    Unended,
    make_row,
    model_dir,
    processor,
    run_loop,
    tokenizer,
    video,
)
from verl_video_tools.core.types import RolloutLimits, StopReason, Trajectory
from verl_video_tools.methods.toolkit.contexts import DROPPED_MARK
from verl_video_tools.replay import areplay
from verl_video_tools.rollout.tokens import placeholder_runs
from verl_video_tools.verl_plugin.agent_loop_worker import BackgroundLoop, VideoAgentLoopWorker
from verl_video_tools.verl_plugin.settings import unpack_record

pytestmark = pytest.mark.usefixtures("context_method", "vocabulary")

TURNS = [choose(20, 60), get("0:03"), Unended(choose(100, 140)), answer("B")]
END = "<|im_end|>"


async def rollout(turns: Any = TURNS, context: str = "last_evidence", **arguments: Any) -> Rollout:
    """Eight frames in the initial frames and in each observation."""
    return await run_loop(turns, method=NAME, method_fields={"context": context}, **arguments)


def prompt_text(sequence: Rollout) -> str:
    """The prompt, with one placeholder for each picture."""
    ids, image = sequence.output.prompt_ids, tokenizer().convert_tokens_to_ids("<|image_pad|>")
    kept = [token for token, before in zip(ids, [None, *ids], strict=False) if token != image or before != image]
    return tokenizer().decode(kept)


@pytest.mark.parametrize(
    ("context", "num_turns", "num_images"),
    [("last_evidence", [1, 2, 1], [8] * 4), ("initial_plus_last", [3, 1], [8, 16, 16, 16])],
)
async def test_a_sequence_ends_where_images_are_dropped(
    context: str, num_turns: list[int], num_images: list[int]
) -> None:
    """The second turn is answered in words, which drops none."""
    result = await rollout(context=context, server=ScriptedServer(TURNS, global_steps=[3, 3, 4, 4]))
    assert (result.trajectory.stop_reason, result.trajectory.flags) == (StopReason.ANSWER, [])
    assert [request["num_images"] for request in result.server.requests] == num_images
    assert len(result.sequences) == len(num_turns)
    turns = zip(result.server.requests, result.server.returned, result.server.returned_logprobs, strict=True)
    for sequence, number in zip(result.sequences, num_turns, strict=True):
        output, end = sequence.output, len(sequence.output.prompt_ids)
        for request, returned, logprobs in islice(turns, number):
            start = len(request["prompt_ids"])
            mask = [0] * len(output.prompt_ids) + output.response_mask
            assert mask[end:start] == [0] * (start - end)
            end = start + len(returned)
            assert sequence.ids[:end] == request["prompt_ids"] + returned
            assert mask[start:end] == [1] * len(returned)
            place = slice(start - len(output.prompt_ids), end - len(output.prompt_ids))
            assert output.response_logprobs is not None and output.response_logprobs[place] == logprobs
        assert end == len(sequence.ids)
        assert output.num_turns == 9
        assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (3, 4)
    assert len({request["request_id"] for request in result.server.requests}) == 1


async def test_later_prompts_hold_all_text_and_the_tokens_as_sampled() -> None:
    result = await rollout()
    appended = await rollout(context="append")
    whole = tokenizer().decode(appended.ids).replace("<|image_pad|>", "")
    last = result.sequences[-1]
    shown = "<|vision_start|><|image_pad|><|vision_end|>"
    text = prompt_text(last)
    assert text.count(DROPPED_MARK) == 16 and text.count(shown) == 8
    assert text.rfind(DROPPED_MARK) < text.index(shown)
    restored = text.replace(DROPPED_MARK, shown).replace("<|image_pad|>", "")
    assert restored + answer("B") + END == whole
    ids = last.output.prompt_ids
    for returned in result.server.returned[:-1]:
        assert any(ids[start : start + len(returned)] == returned for start in range(len(ids)))


async def test_pictures_and_placeholders_agree_in_every_sequence() -> None:
    image_token = tokenizer().convert_tokens_to_ids("<|image_pad|>")
    appended = await rollout(context="append", mm_processor_kwargs=LARGE_PIXELS)
    result = await rollout(context="initial_plus_last", mm_processor_kwargs=LARGE_PIXELS)
    for sequence in result.sequences:
        inputs, positions_4L = sequence.training_tensors()
        assert placeholder_runs(sequence.ids, image_token) == (inputs["image_grid_thw"].prod(dim=1) // 4).tolist()
        assert positions_4L.shape == (4, len(sequence.ids))
    # The last turn's pictures are those of the initial frames and of the last zoom.
    expected = appended.images[:8] + appended.images[-8:]
    assert [image.tobytes() for image in result.sequences[-1].images] == [image.tobytes() for image in expected]


async def test_a_rollout_of_one_turn_is_the_same_under_every_policy() -> None:
    first, *others = [await rollout([answer("B")], context=policy) for policy in ("append", "last_evidence")]
    assert all(other.ids == first.ids and len(other.outputs) == 1 for other in others)


async def test_text_that_the_policy_wrote_is_its_memory() -> None:
    """Each turn is sampled from the prompt, the thoughts so far and the last observation, and trained on once."""
    spelt = "<think>bright <|im_end|> there</think><action>choose frames between 20 and 60</action>"
    result = await rollout([Spelt(spelt), choose(100, 140), answer("B")], context="notes")
    assert (result.trajectory.stop_reason, result.trajectory.flags) == (StopReason.ANSWER, [])
    assert [request["num_images"] for request in result.server.requests] == [8, 16, 16]
    texts = list(map(prompt_text, result.sequences))
    assert [text.count(NOTE) for text in texts] == [0, 1, 2]
    assert f"{NOTE}bright < |im_end|> there" in texts[1] and "choose frames between 20 and 60</action>" not in texts[1]
    for sequence, returned in zip(result.sequences, result.server.returned, strict=True):
        assert sequence.output.response_ids == returned and sequence.output.response_mask == [1] * len(returned)


class FaultyTurn(ScriptedServer):
    """Returns a log-probability too many with one of its turns."""

    faulty: int

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        output = await super().generate(*args, **kwargs)
        if len(self.requests) == self.faulty + 1:
            output.log_probs.append(-1.0)
        return output


@pytest.mark.parametrize("faulty", range(len(TURNS)))
async def test_a_fault_in_any_sequence_flags_the_rollout(faulty: int) -> None:
    server = FaultyTurn(TURNS)
    server.faulty = faulty
    result = await rollout(TURNS, server=server)
    assert result.trajectory.flags == ["invariant"] and len(result.trajectory.turns) == len(TURNS)
    assert result.output.response_mask == [0]


# -------------------------------------------------------------------------------------------------------------- budgets


async def test_the_response_budget_is_one_sequences() -> None:
    result = await rollout([choose(20, 60), choose(100, 140), answer("B")])
    longest = max(len(returned) for returned in result.server.returned)
    again = await rollout([choose(20, 60), choose(100, 140), answer("B")], response_length=longest)
    assert again.trajectory.stop_reason is StopReason.ANSWER
    appended = await rollout([choose(20, 60)], context="append", response_length=longest)
    assert appended.trajectory.stop_reason is StopReason.RESPONSE_BUDGET


@pytest.mark.parametrize("slack", [0, -1])
async def test_the_prompt_of_the_next_turn_has_to_fit(slack: int) -> None:
    longest = len((await rollout()).sequences[-1].output.prompt_ids)
    result = await rollout(prompt_length=longest + slack)
    if slack == 0:
        assert result.trajectory.stop_reason is StopReason.ANSWER
        return
    assert result.trajectory.stop_reason is StopReason.PROMPT_BUDGET
    assert str(result.trajectory.calls()[-1].error).startswith("prompt_budget: ")
    assert len(result.outputs) == 2  # what was sampled is trained on
    assert result.trajectory.flags == []


async def test_the_image_limit_is_one_sequences() -> None:
    assert (await rollout(max_images=8)).trajectory.stop_reason is StopReason.ANSWER
    limited = await rollout(context="initial_plus_last", max_images=15)
    assert limited.trajectory.stop_reason is StopReason.IMAGE_BUDGET


# ------------------------------------------------------------------------------------------ what verl makes of the list


class RewardWorker:
    """Stands for the handle of a reward worker; keeps the records of the rollouts it is asked to score."""

    def __init__(self) -> None:
        self.compute_score = SimpleNamespace(remote=self._score)
        self.trajectories: list[Trajectory] = []

    async def _score(self, data: Any) -> dict[str, Any]:
        self.trajectories.append(unpack_record(data[-1].non_tensor_batch["tool_extra_fields"]))
        return {"reward_score": 0.75, "reward_extra_info": {"score": 0.75}}


async def test_verl_stores_a_row_for_each_sequence_with_the_rollouts_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    result = await rollout(mm_processor_kwargs=LARGE_PIXELS)
    worker, reward_worker = object.__new__(VideoAgentLoopWorker.__ray_actor_class__), RewardWorker()
    worker.processor, worker.tokenizer, worker.mm_processor_kwargs = processor(), tokenizer(), LARGE_PIXELS
    worker._finished = BackgroundLoop("finished rollouts")
    worker.distillation_enabled, worker.reward_loop_worker_handles = False, [reward_worker]
    role = {"strategy": "fsdp2", "fsdp_config": {"mixed_precision": None}}
    worker.config = OmegaConf.create({"actor_rollout_ref": {"actor": role, "ref": role}})
    stored: dict[str, dict[str, Any]] = {}
    processed: list[list[int]] = []
    process = AgentLoopWorker._compute_multi_modal_inputs

    def noted(self: Any, output: Any, input_ids: Any) -> dict[str, Any]:
        processed.append(output.response_ids)
        return process(self, output, input_ids)

    monkeypatch.setattr(AgentLoopWorker, "_compute_multi_modal_inputs", noted)

    async def put(keys: list[str], fields: Any, tags: list[dict], partition_id: str) -> None:
        assert threading.current_thread().name == "finished rollouts"  # the loop of running rollouts goes on
        for i, key in enumerate(keys):
            names = fields.keys()  # a TensorDict iterates over rows
            stored[key] = {name: fields[name][i] for name in names} | {"tag": tags[i]}

    monkeypatch.setattr(agent_loop_tq, "tq", SimpleNamespace(async_kv_batch_put=put))
    await worker._agent_loop_postprocess(result.outputs, validate=False, **make_row("video.mp4"))
    assert [trajectory.answer for trajectory in reward_worker.trajectories] == ["B"]  # scored once
    assert processed == [output.response_ids for output in result.outputs]  # for training, and not for the score
    assert list(stored) == [f"u_0_{number}" for number in range(3)]
    for row, output in zip(stored.values(), result.outputs, strict=True):
        assert row["prompts"].tolist() == output.prompt_ids
        assert row["response_mask"].tolist() == output.response_mask
        assert row["rm_scores"].tolist() == [0.0] * (len(output.response_ids) - 1) + [0.75]
        assert row["tag"]["seq_len"] == len(output.prompt_ids) + len(output.response_ids)
        inputs, _ = replace(result, outputs=[output]).training_tensors()
        assert torch.equal(row["multi_modal_inputs"]["pixel_values"], inputs["pixel_values"].bfloat16())
        assert torch.equal(row["multi_modal_inputs"]["image_grid_thw"], inputs["image_grid_thw"])
        assert row["position_ids"].shape == (4, row["tag"]["seq_len"])


# --------------------------------------------------------------------------------------------------------------- replay


async def test_replay_applies_the_same_budget() -> None:
    turns = [choose(20, 60), choose(100, 140), choose(30, 90), answer("B")]
    budget = RolloutLimits(prompt_tokens=1200, response_tokens=200, images=16)  # room for one observation
    reasons = {}
    for context in ("append", "last_evidence"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FrameThinkerWithContext, "recipe_budget", budget)
            result = await areplay(
                NAME, video(), QUESTION, "B", turns, settings={"context": context}, processor=model_dir()
            )
        reasons[context] = result["stop_reason"]
    assert reasons == {"append": "response_budget", "last_evidence": "answer"}
