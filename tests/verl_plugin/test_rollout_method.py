"""A rollout is paid by its own config: what was its own, and is in its record, holds wherever the record is read."""

# Imports after a skip: what they name is not there on every machine.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, get_type_hints

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict

from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import method_of_rollout, rollout_fields, rollout_overrides
from verl_video_tools.core.types import Method, Sample, Trajectory
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.methods.breakdown import reward_info
from verl_video_tools.methods.direct import Direct
from verl_video_tools.records.metrics import Rollout, rollout_metrics

pytest.importorskip("verl_video_tools.verl_plugin.reward_manager", reason="the manager subclasses verl's")
from verl import DataProto

from verl_video_tools.verl_plugin.reward_manager import VideoToolsRewardManager
from verl_video_tools.verl_plugin.settings import pack_record

ANSWERS = {
    "framethinker": "<think>ok</think><action>output answer: B</action>",
    "videozoomer": "<think>ok</think><answer>B</answer>",
    "longvt": "<think>ok</think><answer>B</answer>",
    "framemind": "<think>ok</think><answer>B</answer>",
    "direct": "<answer>B</answer>",
    "videobrain": "<thinking>ok</thinking><answer>B</answer>",
    "compose": "<think>ok</think><answer>B</answer>",
}
LOOKS = {
    "framethinker": [
        "<think>when</think><action>get frame number at time 0:34</action>",
        "<think>so 1020: 1000 and 1100</think><action>choose frames between 1000 and 1100</action>",
    ],
    "videozoomer": ['<think>a</think><video_zoom>{"segment": [4, 6], "fps": 2}</video_zoom>'],
    "longvt": [
        '<think>a</think><tool_call>{"name": "crop_video", "arguments": {"start_time": 12, "end_time": 20}}</tool_call>'
    ],
    "framemind": [
        "<think>a</think><tool_call>VideoClip(10, 14)</tool_call><tool_call>FrameAt(12)</tool_call>"
        "<turn_sum>b</turn_sum>"
    ],
    "direct": [],
    "videobrain": [
        "<thinking>a</thinking><tool_call>"
        '{"name": "uniform_sample", "arguments": {"start_frame": 0, "end_frame": 100}}</tool_call>'
    ],
    "compose": [
        '<think>a</think><tool_call>{"name": "crop_video", "arguments": {"start_time": 12, "end_time": 20}}</tool_call>'
    ],
}
ROW = {
    "extra_info": {
        "question": "Which is it at 0:34?\nA. a cat\nB. a dog",
        "video_segment": [10.0, 20.0],
        "options": ["a cat", "a dog"],
        "question_type": "mc",
        "video_path": "v.mp4",
        "classification": "direct",
    },
    "reward_model": {"ground_truth": "B"},
}


def numbers_of(method: Method) -> Iterator[tuple[str, Any]]:
    """Each numeric field, and another value that it takes."""
    hints = get_type_hints(type(method))
    for own in fields(method):
        value = getattr(method, own.name)
        kinds = str(hints[own.name])
        if "int" not in kinds and "float" not in kinds:
            continue
        if isinstance(value, tuple):
            others: list[Any] = [tuple(2 * part + 1 for part in value)]
        else:
            others = [4, 1, 2, 9] if value is None else [2 * value + 1, value + 1, value - 1, value / 2]
        yield own.name, next((other for other in others if takes(method, own.name, other)), value)


def takes(method: Method, name: str, value: Any) -> bool:
    try:
        return method_of_rollout(method, {name: value}) != method
    except UsageError:
        return False


ONLY_VALUE = {("direct", "max_turns"), ("compose", "rung")}
"""Fields that take one value, as configured by default."""


def config(**video_tools: Any) -> DictConfig:
    rollout = {"custom": {"video_tools": video_tools}}
    reward = {"num_workers": 1, "reward_model": {"enable": False}}
    return OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "reward": reward})


async def paid(trajectory: Trajectory, configuration: DictConfig) -> dict[str, Any]:
    """What verl is handed for a rollout by the manager itself."""
    entries = {"tool_extra_fields": pack_record(trajectory), **ROW}
    rows = {name: np.array([value], dtype=object) for name, value in entries.items()}
    data = DataProto(TensorDict({"responses": torch.zeros(1, 1)}, batch_size=1), rows)
    result: dict[str, Any] = await VideoToolsRewardManager(configuration, tokenizer=None).run_single(data)
    return result


async def rollout_of(method: Method, video_path: str, looks: bool = False) -> Trajectory:
    turns = [*(LOOKS[method.name] if looks else []), ANSWERS[method.name]]
    return await execute(method, replace(Sample.from_row(ROW), video_path=video_path), turns)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_every_number_of_a_rollout_is_told_and_read_again(name: str) -> None:
    run = get_method(name)
    for field_name, value in numbers_of(run):
        own = replace(run, **{field_name: value})
        settings = rollout_overrides(own, run)
        assert (set(settings) == {field_name}) != ((name, field_name) in ONLY_VALUE), field_name
        assert method_of_rollout(run, settings) == own, field_name


@pytest.mark.parametrize("looks", [False, True], ids=["answers", "looks"])
@pytest.mark.parametrize("name", METHOD_NAMES)
async def test_a_rollout_is_paid_by_its_own_value_of_every_number(
    name: str, looks: bool, make_video: MakeVideo
) -> None:
    """All numbers are other ones at once; that each is told, the test before this one shows."""
    run = own = get_method(name)
    for field_name, value in numbers_of(run):
        if takes(own, field_name, value):
            own = method_of_rollout(own, {field_name: value})
    trajectory = await rollout_of(own, make_video(3000), looks)
    trajectory.settings = rollout_overrides(own, run)
    assert "accuracy_reward" in trajectory.settings and len(trajectory.settings) > len(rollout_fields(type(run))) / 4
    expected = await own.score(trajectory, Sample.from_row(ROW))
    assert expected != await run.score(trajectory, Sample.from_row(ROW))
    result = await paid(trajectory, config())
    assert result["reward_score"] == expected["score"]
    info = reward_info(own, expected, Sample.from_row(ROW), flagged=False)
    assert {key: result["reward_extra_info"][key] for key in info} == info


@pytest.mark.parametrize("name", METHOD_NAMES)
async def test_the_rollouts_of_these_tests_earn_most_components(name: str, make_video: MakeVideo) -> None:
    trajectory = await rollout_of(get_method(name), make_video(3000), looks=True)
    reward = await get_method(name).score(trajectory, Sample.from_row(ROW))
    calls = sum(look.count("<tool_call>") or 1 for look in LOOKS[name])
    assert len(trajectory.executed_calls()) == calls and reward["accuracy"] > 0.0
    earned = {component for component, value in reward.items() if value > 0.0}
    of_other_rollouts = {"framethinker": {"format"}, "framemind": {"format"}, "videobrain": {"behavior"}}
    assert set(get_method(name).reward_components) - earned == of_other_rollouts.get(name, set())


@pytest.mark.parametrize("name", METHOD_NAMES)
async def test_a_recorded_reward_of_four_is_paid_four(name: str, make_video: MakeVideo) -> None:
    """0.9 is a correct answer of VideoZoomer; what else the rollout earns is the same in both."""
    trajectory = await rollout_of(get_method(name), make_video(3000))
    runs = (await paid(trajectory, config()))["reward_extra_info"]
    trajectory.settings = {"accuracy_reward": 4.0}
    own = (await paid(trajectory, config()))["reward_extra_info"]
    assert (runs["acc"], own["acc"], own["accuracy"]) == (1.0, 1.0, 4.0)
    assert own["score"] - runs["score"] == pytest.approx(4.0 - get_method(name).accuracy_reward)
    # What the run says of other fields goes on holding.
    both = await paid(trajectory, config(**{name: {"accuracy_reward": 7.0, "max_turns": get_method(name).max_turns}}))
    assert both["reward_extra_info"]["accuracy"] == 4.0


@dataclass(frozen=True, kw_only=True)
class ThirdParty(Direct):
    """A method whose author thought of no row."""

    name: ClassVar[str] = "third_party"
    lexicon: str = "words.txt"
    sources: tuple[str, ...] = ()
    options: dict[str, int] = field(default_factory=dict)
    anything: Any = None
    mode: str | None = None
    share: float = 0.5
    bounds: tuple[int, float] | None = None


def test_what_can_name_code_or_a_file_is_the_users_alone() -> None:
    own = rollout_fields(ThirdParty)
    assert own >= {"share", "bounds", "initial_frames", "accuracy_reward", "compat", "box", "end_on_call_error"}
    withheld = {"lexicon", "sources", "options", "anything", "mode", "prompt_file", "initial_frames_selector"}
    assert not own & withheld
    for name in METHOD_NAMES:
        assert not rollout_fields(type(get_method(name))) & withheld
    for name in sorted(withheld):
        value = {"sources": ["a"], "options": {}}.get(name, "os:getcwd")
        with pytest.raises(UsageError, match=f"may not set {name} of ThirdParty.*your own configuration alone"):
            method_of_rollout(ThirdParty(), {name: value})


def test_a_session_may_not_have_its_own_code_or_files() -> None:
    run = ThirdParty()
    assert rollout_overrides(replace(run, share=0.25), run) == {"share": 0.25}
    with pytest.raises(UsageError, match="may not set lexicon"):
        rollout_overrides(replace(run, lexicon="other.txt"), run)


def test_metrics_survive_records_of_another_version() -> None:
    trajectory = Trajectory("framethinker", "Which?", settings={"number_of_frames": 3})
    metrics = rollout_metrics([Rollout("u", trajectory, {"score": 0.0, "acc": 0.0})])
    assert metrics["rollout/count"] == 1.0
