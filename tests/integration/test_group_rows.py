"""A group that is compared in TransferQueue itself: its rows change in nothing but reward and record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
import transfer_queue as tq

from tests.group_method import NAME
from tests.integration.groups import clear_queue, keys_of_group, one_group, run_config
from tests.turns.framethinker import answer, choose, get
from verl_video_tools.verl_plugin import queue
from verl_video_tools.verl_plugin.agent_loop_worker import VideoAgentLoopWorker
from verl_video_tools.verl_plugin.settings import unpack_record

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("transfer_queue", "group_method"),
]

SCRIPTS = [[answer("B")], [answer("A")], [choose(20, 60), choose(100, 140), answer("A")], [get("0:03"), answer("B")]]
FIELDS = {"ccv": "False", "choose_bonus": "0.0", "time_bonus": "0.0", "wanted_rate": "0.75"}


def test_rows_are_rewritten_and_keep_their_tags() -> None:
    loops = Path(__file__).with_name("method_loops.yaml")
    config = run_config(
        "qwen2_5_vl",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops}",
        *(f"+actor_rollout_ref.rollout.custom.video_tools.{NAME}.{name}={value}" for name, value in FIELDS.items()),
        method=NAME,
    )
    asyncio.run(one_group(VideoAgentLoopWorker, config, "compared", SCRIPTS))
    keys = keys_of_group("compared")
    fields = ["rm_scores", "extra_fields", "responses", "response_mask", "rollout_log_probs", "num_turns"]
    rows = queue.read(keys, "train", *fields)
    tags = tq.kv_list()["train"]
    # Two of four looked, 0.75 are wanted; three turns are the longest, two cost half of that.
    for number, (row, score) in enumerate(zip(rows, [1.0, 0.0, 0.25 - 0.25, 1.25 - 0.125], strict=True)):
        rewards, extra_fields = row["rm_scores"], row["extra_fields"]
        length = len(row["responses"])
        expected = torch.tensor([0.0] * (length - 1) + [score])
        torch.testing.assert_close(rewards, expected)
        assert extra_fields["reward_extra_info"]["score"] == pytest.approx(score)
        assert len(unpack_record(extra_fields).turns) == len(SCRIPTS[number])
        assert len(row["response_mask"]) == len(row["rollout_log_probs"]) == length
        tag = tags[keys[number]]
        assert (tag["status"], tag["response_len"]) == ("success", length)
    clear_queue()
