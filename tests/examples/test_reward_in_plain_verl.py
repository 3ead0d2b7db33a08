"""examples/reward_in_plain_verl: its README's commands in verl's own configuration, scored by verl's own manager."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import verl.trainer.config
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.reward import load_reward_manager, resolve_reward_manager_cls

from tests.judge_server import JudgeServer
from tests.verl_plugin.harness import tokenizer
from verl_video_tools.core.errors import UsageError

REPO = Path(__file__).parents[2]
README = (REPO / "examples" / "reward_in_plain_verl" / "README.md").read_text()


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        yield server


def configured(number: int, **replaced: str | None) -> DictConfig:
    """verl's defaults for rewards with the options of the README's command of that number."""
    defaults = OmegaConf.load(Path(next(iter(verl.trainer.config.__path__))) / "reward" / "reward.yaml")
    config = OmegaConf.create({"reward": defaults})
    command = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)[number]
    for name, value in re.findall(r"\+?(reward\.[\w.]+)=(\S+)", command):
        value = replaced.get(name.rpartition(".")[2], value)
        if value is not None:
            OmegaConf.update(config, name, OmegaConf.create(f"value: {value}").value, force_add=True)
    return config


def rollout(text: str, truth: str = "B", **extra_info: Any) -> DataProto:
    ids = torch.tensor([tokenizer().encode(text, add_special_tokens=False)])
    batch = TensorDict({"responses": ids, "attention_mask": torch.ones_like(ids)}, batch_size=1)
    fields = {"data_source": "test", "reward_model": {"ground_truth": truth}, "extra_info": extra_info}
    return DataProto(batch, {name: np.array([value], dtype=object) for name, value in fields.items()})


async def score(data: DataProto, monkeypatch: pytest.MonkeyPatch, judge_base_url: str | None = None) -> dict[str, Any]:
    monkeypatch.chdir(REPO)
    manager = load_reward_manager(configured(0, judge_base_url=judge_base_url), tokenizer())
    assert type(manager) is NaiveRewardManager
    try:
        return await manager.run_single(data)
    finally:
        judge = manager.compute_score.args[0].__globals__["_judge"](judge_base_url)
        if judge is not None:
            await judge.aclose()


@pytest.mark.parametrize(
    ("text", "extra_info", "expected"),
    [
        ("<answer>B</answer>", {}, 1.0),
        ("<answer>A</answer> or <answer>(B)</answer>", {}, 1.0),
        ("<answer>a dog</answer>", {"options": ["a cat", "a dog"]}, 1.0),
        ("B", {}, 0.0),
        ("<time>[4, 8]</time><answer>B</answer>", {"video_segment": [4, 8]}, 1.5),
        ("<time>[4, 8]</time><answer>A</answer>", {"video_segment": [6, 8]}, 0.25),
        ("<time>soon</time><answer>B</answer>", {"video_segment": [6, 8]}, 1.0),
        ("<time>[4, 8]</time><answer>B</answer>", {}, 1.0),
    ],
)
async def test_rules(text: str, extra_info: dict[str, Any], expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    result = await score(rollout(text, **extra_info), monkeypatch)
    assert result["reward_score"] == expected
    assert set(result["reward_extra_info"]) == {"score", "acc", "temporal_iou"}


async def test_numbers_and_open_answers(server: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    number = rollout("<answer>12.0</answer>", "12", question_type="numeric")
    assert (await score(number, monkeypatch))["reward_score"] == 1.0
    opened = rollout("<answer>dog and cat</answer>", "a dog and a cat", question="What animals?")
    with pytest.raises(UsageError, match="needs a judge"):
        await score(opened, monkeypatch)
    assert (await score(opened, monkeypatch, server.base_url))["reward_score"] == 1.0
    assert len(server.requests) == 1


def test_the_second_command_selects_our_manager() -> None:
    assert resolve_reward_manager_cls(configured(1)).__name__ == "VideoToolsRewardManager"
