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
from verl_video_tools.core.types import Sample, Subtitle, ToolDescription, ToolPlan
from verl_video_tools.methods import get_method
from verl_video_tools.methods.compose import Compose
from verl_video_tools.methods.compose.composition import PACKAGED, load_composition
from verl_video_tools.methods.compose.grammar import GRAMMARS
from verl_video_tools.methods.compose.parts import PLANS, TOOLS
from verl_video_tools.methods.compose.reward import TERMS, ScoringContext, Term

GOOD = """
grammar: {name: hermes}
initial_frames: {plan: uniform, num_frames: 4, max_pixels: 2304}
tools:
  - {name: crop_video, fps: 2, max_frames: 8}
turns: {max_turns: 3}
reward:
  - {name: accuracy, gate: [tool]}
  - {name: tool, weight: 0.5}
"""

WITH_SUBTITLES = Sample("Which?", "A", "v.mp4", "mc", subtitles=(Subtitle(1.0, 2.0, "a dog barks"),))

FAULTS = [
    ("grammar: {name: hermes}", "grammar: {name: hermse}", r"grammar\.name: .*'hermse'; choose one of: hermes, tags"),
    ("grammar: {name: hermes}", "grammar: hermes", r"grammar: must be a mapping of keys to values, got 'hermes'"),
    ("grammar: {name: hermes}", "", r"grammar: is missing, a mapping of keys to values"),
    ("name: hermes", "name: hermes, max_calls: 2", r"grammar: .* no field 'max_calls'; its fields are: max_calls_per"),
    ("name: hermes", "name: hermes, max_calls_per_turn: 0", r"grammar: .*max_calls_per_turn must be at least 1, got 0"),
    ("name: hermes", "name: tags, thought: a b", r"grammar: Tags\.thought must be a word of letters.*'a b'"),
    ("name: hermes", "name: tags, call: answer", r"grammar: Tags\.answer must be another tag than the other two"),
    ("name: hermes", "name: 'os:getcwd'", r"grammar\.name: must be a subclass of .*Grammar, got"),
    ("plan: uniform", "plan: unifrom", r"initial_frames\.plan: .*'unifrom'; choose one of: none, uniform, rate"),
    ("plan: uniform, ", "", r"initial_frames\.plan: it is missing"),
    ("num_frames: 4, ", "", r"initial_frames: num_frames is missing; it is a field of Uniform without a default"),
    ("num_frames: 4", "num_frames: four", r"initial_frames: Uniform\.num_frames takes int, got 'four'"),
    ("num_frames: 4", "num_frames: 0", r"initial_frames: Uniform\.num_frames must be at least 1.*got 0"),
    (", max_pixels: 2304", "", r"initial_frames: max_pixels is missing"),
    ("max_pixels: 2304", "min_pixels: 9, max_pixels: 4", r"initial_frames: .*max_pixels must be at least 9, got 4"),
    ("max_pixels: 2304", "max_pixels: 9, selector: 3", r"initial_frames\.selector: must be a text, got 3"),
    (
        "plan: uniform, num_frames: 4, max_pixels: 2304",
        "plan: none, selector: most_similar",
        r"initial_frames\.selector: chooses among frames, and the plan `none` shows none",
    ),
    ("max_pixels: 2304", "max_pixels: 9, selector: best", r"initial_frames\.selector: .*'best'; choose one of: most"),
    ("name: crop_video", "name: crop", r"tools\[0\]\.name: there is no tool 'crop'; choose one of: crop_video"),
    ("name: crop_video", "nmae: crop_video", r"tools\[0\]\.name: it is missing"),
    ("- {name: crop_video, fps: 2, max_frames: 8}", "- crop_video", r"tools\[0\]: must be a mapping; write `- name"),
    ("  - {name: crop_video, fps: 2, max_frames: 8}", "  crop_video: {fps: 2}", r"tools: must be a list of mappings"),
    ("fps: 2", "fsp: 2", r"tools\[0\]: CropVideo has no field 'fsp'; its fields are: "),
    ("fps: 2", "fps: fast", r"tools\[0\]: CropVideo\.fps takes float, got 'fast'"),
    ("fps: 2", "fps: 0", r"tools\[0\]: CropVideo\.fps must be a finite number above 0, got 0\.0"),
    ("fps: 2", "compat: reference", r"tools\[0\]\.compat: only the papers' own methods have published behaviour"),
    ("fps: 2", "about: 5", r"tools\[0\]\.about: must be a text, got 5"),
    ("turns:", "  - {name: crop_video}\nturns:", r"tools\[1\]\.name: there is a tool 'crop_video' already"),
    ("name: crop_video, fps: 2, max_frames: 8", "name: 'os:getcwd'", r"tools\[0\]\.name: must name a dataclass"),
    ("name: crop_video", "name: 'no_such:Tool'", r"tools\[0\]\.name: the tool 'no_such:Tool' cannot be imported"),
    ("max_turns: 3", "max_turn: 3", r"turns\.max_turn: there is no such key; the keys here are: max_turns"),
    ("max_turns: 3", "max_turns: 3, context: all", r"turns: Compose\.context .*got 'all'"),
    ("name: accuracy", "name: acuracy, key: accuracy", r"reward\[0\]\.name: there is no reward term 'acuracy'"),
    ("name: accuracy, gate: [tool]", "name: calls", r"reward: must have a term with the key accuracy, which `acc`"),
    ("gate: [tool]", "gate: [tools]", r"reward\[0\]\.gate: there is no other term 'tools'; choose among tool"),
    ("gate: [tool]", "gate: tool", r"reward\[0\]: RewardTerm\.gate takes .*got 'tool'"),
    ("gate: [tool]", "gate_from: 1", r"reward\[0\]: RewardTerm\.gate must be `all`, or the keys of the terms"),
    ("weight: 0.5", "gate: [accuracy]", r"reward: the gates of .* go round in a circle"),
    ("weight: 0.5", "weight: half", r"reward\[1\]: RewardTerm\.weight takes float, got 'half'"),
    ("weight: 0.5", "weight: .inf", r"reward\[1\]: RewardTerm\.weight must be a finite number, got inf"),
    ("weight: 0.5", "key: accuracy", r"reward\[1\]\.key: two terms are called 'accuracy'"),
    ("weight: 0.5}", "weight: 1}\n  - {name: calls, key: acc}", r"reward\[2\]: .*key must be a word other than score"),
    ("weight: 0.5", "tools: [zoom]", r"reward\[1\]\.tools: there is no tool zoom; the composition has: crop_video"),
    ("turns:", "messages: {observe: x}\nturns:", r"messages\.observe: there is no such key; the keys here are: user"),
    ("turns:", "messages: {observation: x}\nturns:", r"messages\.observation: must hold \{frames\} exactly once"),
    ("turns:", "messages: {frame: '{image}{time}'}\nturns:", r"messages\.frame: holds \{time\}, which nothing fills"),
    (
        "turns:",
        "messages: {frame: '{image} at {seconds:.1f}'}\nturns:",
        r"messages\.frame: holds \{seconds:\.1f\}, which nothing fills; it may hold, without a format",
    ),
    ("turns:", "messages: {decimals: 7}\nturns:", r"messages\.decimals: must be a whole number from 0 to 6, got 7"),
    ("turns:", "prompt: {file: none.txt}\nturns:", r"prompt\.file: cannot read prompt_file '.*none\.txt'"),
    ("turns:", "prompt: {file: fps.txt}\nturns:", r"prompt\.file: holds \{fps\}, which nothing fills; it may .* dur"),
    ("turns:", "prompt: {file: format.txt}\nturns:", r"prompt\.file: holds \{duration:\.0f\}, which nothing fills"),
    ("turns:", "prompt: {text: x}\nturns:", r"prompt\.text: there is no such key; the keys here are: file, values"),
    ("turns:", "limits: {image: 1}\nturns:", r"limits: RolloutLimits has no field 'image'; its fields are: images"),
    ("turns:", "tool: []\nturns:", r"tool: there is no such key; the keys here are: about, grammar, initial_frames"),
    ("turns:", "turns: {max_turns: 4}\nturns:", r"not a YAML file of keys and values: .*duplicate key turns"),
    ("grammar:", "grammar: [", r"not a YAML file of keys and values"),
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
        assert str(error).startswith(f"{file}: ")
        return str(error)
    return ""


def test_a_fault_names_file_key_and_fix(tmp_path: Path) -> None:
    (tmp_path / "fps.txt").write_text('At {fps} a second, {duration} s. {"a": 1} \\boxed{answer}')
    (tmp_path / "format.txt").write_text("{duration:.0f} s")
    for part, broken, told in FAULTS:
        assert part in GOOD
        found = refusal(tmp_path, GOOD.replace(part, broken, 1))
        assert re.search(told, found), (part, broken, found)


@pytest.mark.parametrize("text", ["", "- a", "a", "grammar", "3"])
def test_a_file_without_keys_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is missing|there is no such key|must be a mapping|not a YAML"):
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
    assert method.made_of() == {
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
    (tmp_path / "prompt.txt").write_text('Look at {num} things for {duration} s. {"a": {}} \\boxed{letter}')
    file = write(tmp_path, GOOD + "prompt: {file: prompt.txt, values: {num: 3}}\n")
    method = get_method("compose", file=file)
    assert method.prompt_file == str(tmp_path / "prompt.txt")
    assert isinstance(method, Compose) and method.composition.prompt_values == {"num": "3"}


def test_an_edit_changes_no_run(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    method = get_method("compose", file=file)
    write(tmp_path, "nothing")
    assert get_method("compose", file=file) == method


def test_no_row_names_a_composition(tmp_path: Path) -> None:
    assert "file" not in rollout_fields(Compose)
    with pytest.raises(UsageError, match=r"may not hold file of Compose.*your own configuration alone"):
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
class Unawaited(Term):
    """A term that forgets `async`."""

    def value(self, rollout: ScoringContext) -> float:  # type: ignore[override]  # the fault that is planted
        return 1.0


def test_a_term_that_cannot_be_awaited_is_told(tmp_path: Path) -> None:
    bad = write(tmp_path, GOOD + f"  - {{name: '{__name__}:Unawaited', key: own}}\n")
    with pytest.raises(UsageError, match=r"reward\[2\]\.name: `value` of .*:Unawaited must be a coroutine function"):
        get_method("compose", file=bad)


def test_a_message_may_hold_latex(tmp_path: Path) -> None:
    text = GOOD.replace("turns:", "messages: {user: '{question} {frames} Answer in \\boxed{letter}.'}\nturns:", 1)
    method = get_method("compose", file=write(tmp_path, text))
    assert method.message_templates()["user"].text.endswith("\\boxed{letter}.")


def test_tools_and_terms_of_other_packages_are_named_by_path(tmp_path: Path) -> None:
    text = GOOD.replace("\nturns:", f"\n  - {{name: '{__name__}:Nod', times: 2}}\nturns:")
    text += f"  - {{name: '{__name__}:Length', key: length, per_turn: 0.5}}\n"
    method = get_method("compose", file=write(tmp_path, text))
    assert isinstance(method, Compose) and method.searches
    assert method.composition.tools["nod"].tool == Nod(times=2)
    assert {part.key: part.term for part in method.reward.terms}["length"] == Length(per_turn=0.5)
    assert not method.asks_model
    (folder := tmp_path / "asking").mkdir()
    asking = get_method("compose", file=write(folder, GOOD.replace("\nturns:", "\n  - {name: ask_model}\nturns:")))
    assert asking.asks_model
    bad = write(tmp_path / "..", text.replace("times: 2", "tmies: 2"))
    with pytest.raises(UsageError, match=r"tools\[1\]: Nod has no field 'tmies'; its fields are: times"):
        get_method("compose", file=bad)


def test_every_registered_part_can_be_imported_and_has_the_name_it_is_called_by() -> None:
    from verl_video_tools.core.resolve import resolve

    for registered in (PLANS, GRAMMARS, TERMS):
        assert all(resolve(name, registered, "part") for name in registered)
    for name, entry in TOOLS.items():
        tool = resolve(name, {name: entry.path}, "tool")(**entry.defaults)
        assert tool.name == name and tool.description.name == name


@pytest.mark.parametrize("name", TOOLS)
def test_what_a_tool_needs_is_told_also_where_its_path_is_given(name: str, tmp_path: Path) -> None:
    entry = TOOLS[name]
    fields = {key: list(value) if isinstance(value, tuple) else value for key, value in entry.defaults.items()}
    given = "".join(f", {key}: {value}" for key, value in fields.items())
    for named in (name, f"'{entry.path}'"):
        tools = GOOD.replace("{name: crop_video, fps: 2, max_frames: 8}", f"{{name: {named}{given}}}")
        method = get_method("compose", file=write(tmp_path, tools))
        assert isinstance(method, Compose)
        told_in_prompt = bool(method.prompt_subtitles(WITH_SUBTITLES))
        assert (method.searches, method.asks_model, told_in_prompt) == (
            name == "clip_sample",
            name == "ask_model",
            name not in ("subtitles_at", "search_subtitles"),
        )
