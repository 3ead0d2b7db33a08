"""A composition is checked as a whole when it is read: every fault names the file, the key and what is allowed."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import method_of_rollout, rollout_fields
from verl_video_tools.core.types import ToolDescription, ToolPlan
from verl_video_tools.methods import get_method
from verl_video_tools.methods.compose import Compose
from verl_video_tools.methods.compose.composition import PACKAGED, PLANS, TOOLS, load_composition
from verl_video_tools.methods.compose.parts import TERMS, ScoringContext, Term

GOOD = """
initial_frames: {plan: uniform, num_frames: 4, min_pixels: 784, max_pixels: 2304}
tools:
  - {name: crop_video, fps: 2, max_frames: 8}
turns: {max_turns: 3}
reward:
  - {name: accuracy, gate: [tool]}
  - {name: tool, weight: 0.5}
"""


FAULTS = [
    ("max_turns: 3", "max_turns: 3, max_calls: 2", r"turns has no field 'max_calls'.*mean 'max_calls_per_turn'\?"),
    ("plan: uniform", "plan: 'os:getcwd'", r"plan: must name a dataclass that is a subclass of FramePlan, got"),
    ("plan: uniform", "plan: unifrom", r"initial_frames\.plan: .*'unifrom'; .*; did you mean 'uniform'\?"),
    ("plan: uniform, ", "", r"initial_frames\.plan: there is no plan 'None'; choose among uniform, ladder"),
    ("num_frames: 4, ", "", r"initial_frames: the key num_frames is missing"),
    ("num_frames: 4", "num_frames: four", r"initial_frames\.num_frames takes int, got 'four'"),
    ("num_frames: 4", "num_frames: 0", r"initial_frames: Uniform\.num_frames must be at least 1, got 0"),
    ("max_pixels: 2304", "max_pixels: 4", r"initial_frames: .*max_pixels must be at least min_pixels, 784, got 4"),
    ("name: crop_video", "name: crop_vidoe", r"tools\[0\]\.name: .*'crop_vidoe'; .*; did you mean 'crop_video'\?"),
    ("name: crop_video", "nmae: crop_video", r"tools\[0\]\.name: there is no tool 'None'; choose among crop_video"),
    ("- {name: crop_video, fps: 2, max_frames: 8}", "- crop_video", r"tools\[0\] takes keys and .*, got 'crop_video'"),
    ("  - {name: crop_video, fps: 2, max_frames: 8}", "  crop_video: {fps: 2}", r"tools takes a list of .*, got \{'c"),
    ("fps: 2", "fsp: 2", r"tools\[0\] has no field 'fsp'; its fields are: .*; did you mean 'fps'\?"),
    ("fps: 2", "fps: fast", r"tools\[0\]\.fps takes float, got 'fast'"),
    ("fps: 2", "fps: 0", r"tools\[0\]: CropVideo\.fps must be a finite number above 0, got 0\.0"),
    ("turns:", "  - {name: crop_video}\nturns:", r"tools\[1\]\.name: there is a tool 'crop_video' already"),
    ("name: crop_video, fps: 2, max_frames: 8", "name: 'os:getcwd'", r"tools\[0\]\.name: must name a dataclass"),
    ("crop_video, fps: 2, max_frames: 8", f"'{__name__}:Bare'", r"tools\[0\]\.name: a tool has .*, got '.*:Bare'"),
    ("name: crop_video", "name: 'no_such:Tool'", r"tools\[0\]\.name: the tool 'no_such:Tool' cannot be imported"),
    ("max_turns: 3", "max_turn: 3", r"turns has no field 'max_turn'; .*; did you mean 'max_turns'\?"),
    ("name: accuracy", "name: acuracy", r"reward\[0\]\.name: there is no reward term 'acuracy'.*mean 'accuracy'\?"),
    ("name: accuracy, gate: [tool]", "name: calls", r"reward: must have a term `accuracy` with a weight above 0"),
    ("gate: [tool]", "weight: 0", r"reward: must have a term `accuracy` with a weight above 0"),
    ("gate: [tool]", "gate: [tools]", r"reward\[0\]\.gate: there is no term further down 'tools'.*mean 'tool'\?"),
    ("gate: [tool]", "gate: tool", r"reward\[0\]\.gate takes .*got 'tool'"),
    ("weight: 0.5", "gate: [accuracy]", r"reward\[1\]\.gate: there is no term further down 'accuracy'; there is none"),
    ("weight: 0.5", "weight: .inf", r"reward\[1\]\.weight: must be a finite number, got inf"),
    ("weight: 0.5", "weight: half", r"reward\[1\]\.weight takes float, got 'half'"),
    ("weight: 0.5}", "weight: 1}\n  - {name: calls, key: tool}", r"reward\[2\]\.key: .*no other term has .*got 'tool'"),
    ("weight: 0.5}", "weight: 1}\n  - {name: calls, key: acc}", r"reward\[2\]\.key: must be a word .*got 'acc'"),
    (
        "weight: 0.5",
        "tools: [zoom]",
        r"reward\[1\]\.tools: there is no tool in this file 'zoom'; choose among crop",
    ),
    (
        "turns:",
        "messages: {observe: x}\nturns:",
        r"messages: there is no message 'observe'; choose among user, frame",
    ),
    ("turns:", "messages: {observation: x}\nturns:", r"messages\.observation must hold \{frames\} exactly once"),
    ("turns:", "messages: {frame: '{image}{scond}'}\nturns:", r"frame: there is no placeholder 'scond'.*'seconds'\?"),
    (
        "turns:",
        "messages: {frame: '{image} {seconds:.1f}'}\nturns:",
        r"frame holds \{seconds:\.1f\}, which nothing fills",
    ),
    ("turns:", "prompt: none.txt\nturns:", r"cannot read prompt_file '.*none\.txt'"),
    ("turns:", "prompt: fps.txt\nturns:", r"prompt: there is no placeholder 'fps'; choose among duration"),
    ("turns:", "prompt: format.txt\nturns:", r"prompt: holds \{duration:\.0f\}; placeholders take no format"),
    ("turns:", "prompt: [a]\nturns:", r"the file\.prompt takes str \| None, got \['a'\]"),
    ("turns:", "limits: {image: 1}\nturns:", r"limits has no field 'image'; .*; did you mean 'images'\?"),
    ("turns:", "limits: {images: 1}\nturns:", r"limits: the key prompt_tokens is missing"),
    ("turns:", "tool: []\nturns:", r"the file has no field 'tool'; its fields are: .*; did you mean 'tools'\?"),
    ("turns:", "turns: {max_turns: 4}\nturns:", r"duplicate key turns .*; name a YAML file of keys and values"),
    ("initial_frames:", "initial_frames: [", r"name a YAML file of keys and values"),
]


def write(folder: Path, text: str) -> str:
    path = folder / "composition.yaml"
    path.write_text(text)
    return str(path)


def refusal(folder: Path, text: str) -> str:
    """The message about a composition; empty where it is valid."""
    file = str(folder / f"composition_{len(list(folder.iterdir()))}.yaml")  # a process reads each file once
    Path(file).write_text(text)
    try:
        get_method("compose", file=file)
    except UsageError as error:
        assert file in str(error)
        return str(error)
    return ""


def test_a_fault_names_file_key_and_fix(tmp_path: Path) -> None:
    (tmp_path / "fps.txt").write_text('At {fps} a second, {duration} s. {"a": 1} \\boxed{answer}')
    (tmp_path / "format.txt").write_text("{duration:.0f} s")
    for part, broken, told in FAULTS:
        assert part in GOOD
        found = refusal(tmp_path, GOOD.replace(part, broken, 1))
        assert re.search(told, found), (part, broken, found)


@pytest.mark.parametrize("text", ["", "- a", "a", "tools", "3"])
def test_a_file_without_keys_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is missing|has no field|takes keys and values|name a YAML file"):
        get_method("compose", file=write(tmp_path, text))


def test_a_file_that_is_not_there_is_told_with_the_packaged_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the composition 'longvtt'.*or one of: default, demo, spatial"):
        get_method("compose", file="longvtt")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot read the composition"):
        get_method("compose", file=str(tmp_path / "binary.yaml"))


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_compositions_are_whole(name: str) -> None:
    method = get_method("compose", file=name)
    assert method.label == f"compose, {name}"
    assert pickle.loads(pickle.dumps(method)) == method
    assert method.provenance() == {
        "file": name,
        "digest": load_composition(name).digest,
        "rewards": list(method.reward_components),
        "tools": list(load_composition(name).tools),
    }


def test_the_configuration_wins_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    assert (get_method("compose", file=file).max_turns, get_method("compose", file=file, max_turns=7).max_turns) == (
        3,
        7,
    )
    assert get_method("compose", file=file, accuracy_reward=2).accuracy_reward == 2.0


def test_the_prompt_file_lies_beside_the_composition(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text('Look for {duration} s. {"a": {}} \\boxed{letter}')
    method = get_method("compose", file=write(tmp_path, GOOD + "prompt: prompt.txt\n"))
    assert method.prompt_file == str(tmp_path / "prompt.txt")


def test_an_edit_changes_no_run(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    method = get_method("compose", file=file)
    write(tmp_path, "nothing")
    assert get_method("compose", file=file) == method


def test_no_row_names_a_composition(tmp_path: Path) -> None:
    assert "file" not in rollout_fields(Compose)
    with pytest.raises(UsageError, match=r"may not set file of Compose.*your own configuration alone"):
        method_of_rollout(get_method("compose"), {"file": write(tmp_path, GOOD)})


@dataclass(frozen=True, kw_only=True)
class Nod:
    """A tool of another package."""

    name: ClassVar[str] = "nod"
    description: ClassVar[ToolDescription] = ToolDescription(name="nod", description="Nods.", parameters={})
    searches: ClassVar[bool] = True

    times: int = 1

    async def plan(self, arguments: object, context: object) -> ToolPlan:
        return ToolPlan(result={"nods": self.times})


@dataclass(frozen=True, kw_only=True)
class Length(Term):
    """A term of another package."""

    per_turn: float = 1.0

    async def value(self, rollout: ScoringContext) -> float:
        return self.per_turn * len(rollout.trajectory.turns)


@dataclass(frozen=True, kw_only=True)
class Bare:
    """A tool that does not say what it is."""


def test_a_message_may_hold_latex(tmp_path: Path) -> None:
    text = GOOD.replace("turns:", "messages: {user: '{question} {frames} Answer in \\boxed{letter}.'}\nturns:", 1)
    method = get_method("compose", file=write(tmp_path, text))
    assert method.message_templates()["user"].text.endswith("\\boxed{letter}.")


def test_tools_and_terms_of_other_packages_are_named_by_path(tmp_path: Path) -> None:
    text = GOOD.replace("\nturns:", f"\n  - {{name: '{__name__}:Nod', times: 2}}\nturns:")
    text += f"  - {{name: '{__name__}:Length', key: length, per_turn: 0.5}}\n"
    method = get_method("compose", file=write(tmp_path, text))
    assert isinstance(method, Compose) and method.searches
    assert method.composition.tools["nod"] == Nod(times=2)
    assert method.composition.terms[-1] == Length(key="length", per_turn=0.5)
    assert not method.asks_model
    (folder := tmp_path / "asking").mkdir()
    asking = get_method("compose", file=write(folder, GOOD.replace("\nturns:", "\n  - {name: ask_model}\nturns:")))
    assert asking.asks_model
    bad = write(tmp_path / "..", text.replace("times: 2", "tmies: 2"))
    with pytest.raises(UsageError, match=r"tools\[1\] has no field 'tmies'; its fields are: times; did you mean"):
        get_method("compose", file=bad)


def test_every_registered_part_can_be_imported_and_has_the_name_it_is_called_by() -> None:
    from verl_video_tools.core.config import resolve

    for registered in (PLANS, TERMS):
        assert all(resolve(name, registered, "part") for name in registered)


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_has_its_name_and_tells_what_it_needs(name: str, tmp_path: Path) -> None:
    tools = GOOD.replace("{name: crop_video, fps: 2, max_frames: 8}", f"{{name: {name}}}")
    method = get_method("compose", file=write(tmp_path, tools))
    assert isinstance(method, Compose)
    assert list(method.composition.tools) == [name] == [method.composition.descriptions[name].name]
    assert (method.searches, method.asks_model) == (name == "clip_sample", name == "ask_model")
