"""Terms that compare a group: weights and gates against a hand calculation, in the rewards that training reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.methods.compose.test_reward import SAMPLE, call, rollout
from verl_video_tools.core.errors import GroupScoreError, UsageError
from verl_video_tools.core.group_rewards import group_rewards
from verl_video_tools.core.types import Trajectory
from verl_video_tools.methods.compose import composition
from verl_video_tools.methods.compose.method import Compose
from verl_video_tools.methods.compose.reward import Accuracy, GroupTerm, Reward, RewardTerm, ScoredGroup
from verl_video_tools.testing.run import PROPERTIES, check
from verl_video_tools.testing.subject import Subject
from verl_video_tools.testing.world import World

DEFAULT = (Path(composition.__file__).parent / "default.yaml").read_text(encoding="utf-8")
PAGE = Path(__file__).parents[3] / "docs" / "compose.md"
OF_THE_PAGE = next(
    block
    for block in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if "name: curiosity" in block
)


@dataclass(frozen=True, kw_only=True)
class Numbered(GroupTerm):
    """The rollout's place in the group, from 1."""

    def values(self, group: ScoredGroup) -> list[float]:
        return [place + 1.0 for place, _ in enumerate(group.trajectories)]


@dataclass(frozen=True, kw_only=True)
class Failing(GroupTerm):
    def values(self, group: ScoredGroup) -> list[float]:
        raise ZeroDivisionError("a term's own code")


def composed(folder: Path, *terms: dict[str, Any], **fields: Any) -> Compose:
    values = yaml.safe_load(DEFAULT)
    values["reward"] = list(terms)
    values["tools"] = [{"name": "crop_video"}, {"name": "zoom"}]
    file = folder / f"own_{len(list(folder.iterdir()))}.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return Compose(file=str(file), **fields)


async def compared(method: Compose, *trajectories: Trajectory) -> list[dict[str, float]]:
    """The rewards of a group as the agent loop worker makes them: each by itself, then compared."""
    alone = [await method.score(each, SAMPLE) for each in trajectories]
    rewards = [{"acc": method.acc(reward, SAMPLE), **reward} for reward in alone]
    for reward in rewards:
        assert all(reward[name] == 0.0 for name in method.group_components)
    return group_rewards(method, trajectories, rewards, SAMPLE)


RIGHT, WRONG = "A", "B"


async def test_the_reward_of_a_group_by_hand(tmp_path: Path) -> None:
    """Four rollouts: right with a call, wrong with a call, right without, wrong without."""
    method = composed(
        tmp_path,
        {"name": "accuracy", "weight": 0.9, "gate": ["diversity", "relative_length"], "gate_from": 1.0},
        {"name": "format", "weight": 0.1},
        {"name": "curiosity", "weight": 0.5, "wanted_rate": 0.75},
        {"name": "diversity", "weight": 0.2, "margin_seconds": 0.0},
        {"name": "relative_length", "weight": 0.3, "of": "turns"},
        {"name": "tool_necessity", "key": "needed", "weight": 0.4},
    )
    assert method.group_components == ("curiosity", "needed", "diversity", "relative_length")
    group = [
        rollout(call(shown=(100, 200)), answer=RIGHT),  # 10 s to 20 s
        rollout(call(shown=(150, 250)), answer=WRONG),  # 15 s to 25 s: IoU 1/3
        rollout(answer=RIGHT),
        rollout(answer=WRONG),
    ]
    rewards = await compared(method, *(each.trajectory for each in group))
    # Half used a tool, 0.25 fewer than wanted. One of the two without a tool was wrong.
    expected = [
        {"accuracy": 0.9, "curiosity": 0.125, "needed": 0.2, "diversity": 0.2 * 2 / 3, "relative_length": -0.3},
        {"accuracy": 0.0, "curiosity": 0.125, "needed": 0.0, "diversity": 0.0, "relative_length": 0.0},
        {"accuracy": 0.9, "curiosity": 0.0, "needed": 0.0, "diversity": 0.0, "relative_length": 0.0},
        {"accuracy": 0.0, "curiosity": 0.0, "needed": 0.0, "diversity": 0.0, "relative_length": 0.0},
    ]
    for reward, wanted in zip(rewards, expected, strict=True):
        assert {name: reward[name] for name in wanted} == pytest.approx(wanted)
        assert reward["score"] == pytest.approx(sum(wanted.values()) + reward["format"])
        assert reward["acc"] == float(wanted["accuracy"] > 0)


async def test_a_tool_that_is_named_counts_alone(tmp_path: Path) -> None:
    tools = {"tools": ["zoom"]}
    method = composed(
        tmp_path,
        {"name": "accuracy"},
        {"name": "curiosity", "wanted_rate": 1.0, **tools},
        {"name": "tool_necessity", **tools},
    )
    group = [rollout(call("zoom"), answer=RIGHT), rollout(call("crop_video"), answer=WRONG)]
    rewards = await compared(method, *(each.trajectory for each in group))
    assert [reward["curiosity"] for reward in rewards] == [0.5, 0.0]
    assert [reward["tool_necessity"] for reward in rewards] == [1.0, 0.0]


@pytest.mark.parametrize(("of", "longest"), [("characters", 0), ("turns", 0), ("calls", 1)])
async def test_what_length_is(of: str, longest: int, tmp_path: Path) -> None:
    method = composed(tmp_path, {"name": "accuracy"}, {"name": "relative_length", "of": of})
    two = rollout(call(), call(ok=False)).trajectory  # three turns, one executed call
    other = rollout(answer="B").trajectory
    other.turns[0].calls = [call(), call()]  # two calls of one turn
    rewards = await compared(method, two, other)
    assert [reward["relative_length"] for reward in rewards] == [-1.0 if place == longest else 0.0 for place in (0, 1)]


@given(weight=st.floats(0.001, 1000.0), threshold=st.sampled_from([0.1, 0.3, 0.7, 1.0]))
def test_a_threshold_of_a_gate_sees_the_value_before_its_weight(weight: float, threshold: float) -> None:
    terms = (
        RewardTerm(key="accuracy", term=Accuracy(), weight=weight, gate=("numbered",), gate_from=threshold),
        RewardTerm(key="numbered", term=Numbered(), weight=2.0),
    )
    values = (threshold, threshold - 0.01, 1.0)
    rewards = [{"accuracy": value * weight} for value in values]
    group = ScoredGroup([Trajectory("compose", "?")] * 3, rewards)
    earned = [each["numbered"] for each in Reward(terms).group_components(group)]
    assert earned == [2.0, 0.0, 6.0]


async def test_gates_weights_and_terms_of_weight_0(tmp_path: Path) -> None:
    """A gate without a threshold multiplies, two gates both do, and what has no weight is recorded and not paid."""
    numbered = f"{__name__}:Numbered"
    method = composed(
        tmp_path,
        {"name": "accuracy", "weight": 0.5, "gate": ["first", "told"]},
        {"name": "tool", "weight": 0.0, "gate": ["first"], "gate_from": 0.25},
        {"name": numbered, "key": "first", "weight": 10.0},
        {"name": numbered, "key": "told", "weight": 0.0},
        {"name": numbered, "key": "free", "weight": -1.0},
        accuracy_reward=0.8,
    )
    group = [rollout(call(), answer=RIGHT), rollout(answer=RIGHT), rollout(call(), answer=WRONG)]
    rewards = await compared(method, *(each.trajectory for each in group))
    assert [reward["first"] for reward in rewards] == [10.0, 0.0, 0.0]
    assert [reward["told"] for reward in rewards] == [1.0, 2.0, 0.0]
    assert [reward["free"] for reward in rewards] == [-1.0, -2.0, -3.0]
    assert [reward["score"] for reward in rewards] == pytest.approx([0.8 + 10.0 - 1.0, 0.8 - 2.0, -3.0])


async def test_a_term_that_fails_is_named(tmp_path: Path) -> None:
    method = composed(tmp_path, {"name": "accuracy"}, {"name": f"{__name__}:Failing", "key": "failing"})
    group = [rollout(answer=RIGHT), rollout(answer=WRONG)]
    with pytest.raises(GroupScoreError, match=r"Compose\.score_group failed: ZeroDivisionError"):
        await compared(method, *(each.trajectory for each in group))


def test_a_composition_without_such_terms_compares_nothing(tmp_path: Path) -> None:
    assert composed(tmp_path, {"name": "accuracy"}).group_components == ()
    assert Compose().group_components == () and "group_rewards" not in Compose().made_of()


def test_records_name_the_terms_that_need_a_group(tmp_path: Path) -> None:
    method = composed(tmp_path, {"name": "accuracy"}, {"name": "curiosity", "key": "curious"})
    assert method.made_of()["group_rewards"] == ["curious"]


@pytest.mark.parametrize(
    ("term", "fault"),
    [
        ({"name": "curiosity", "gate": ["accuracy"]}, r"reward\[1\]\.gate: curiosity compares a group"),
        ({"name": "curiosity", "gate": "all"}, "it cannot gate one"),
        ({"name": "curiosity", "wanted_rate": 2}, r"reward\[1\].*wanted_rate must be 0 to 1"),
        ({"name": "curiosity", "tools": ["look"]}, r"reward\[1\]\.tools: there is no tool look"),
        ({"name": "diversity", "margin_seconds": -1}, "margin_seconds must be at least 0"),
        ({"name": "relative_length", "of": "tokens"}, r"reward\[1\].*of"),
        ({"name": "novelty"}, "there is no reward term 'novelty'.*curiosity"),
    ],
)
def test_what_makes_no_sense_is_refused(term: dict[str, Any], fault: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=fault):
        composed(tmp_path, {"name": "accuracy"}, term)


def test_the_checker_finds_no_fault_in_what_a_group_earns(tmp_path: Path) -> None:
    """The reward of docs/compose.md, and a term of necessity, in the default composition."""
    terms = yaml.safe_load(OF_THE_PAGE)["reward"]
    method = composed(tmp_path, *terms, {"name": "tool_necessity", "weight": 0.2})
    subject = Subject(method, World(tmp_path))
    for name in ("group_rewards_follow_the_rollout", "refused_calls_earn_nothing"):
        assert check(PROPERTIES[name], subject, {}).status == "pass"
