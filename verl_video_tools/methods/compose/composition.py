"""A composition: what a YAML file says a method is made of, read and checked as a whole before a run starts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.prompt_files import read_prompt
from verl_video_tools.core.resolve import resolve
from verl_video_tools.core.selectors import load_selector
from verl_video_tools.core.templates import formatted_placeholder
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.frames import PLANS, FramePlan, NoFrames
from verl_video_tools.methods.compose.grammar import GRAMMARS, Grammar
from verl_video_tools.methods.compose.messages import read_templates
from verl_video_tools.methods.compose.reward import Reward, read_reward
from verl_video_tools.methods.compose.section import Section
from verl_video_tools.methods.compose.tools import OfferedTool, read_tool

_PACKAGE = "verl_video_tools.methods.compose"
_PLACEHOLDER = re.compile(r"(?<!\w)\{([a-z_]+)\}")  # and not \boxed{answer}
_KEYS = ("about", "grammar", "initial_frames", "tools", "turns", "reward", "messages", "prompt", "limits")

PROMPT_VALUES = ("duration", "initial_frames", "max_turns", "max_calls", "thought", "tools")
"""Placeholders that are filled in every system prompt."""

PAPERS = ("framemind", "framethinker", "longvt", "videobrain", "videozoomer")
"""Compositions of this package that are a paper as far as a composition goes, by the name of its method."""

PACKAGED = ("default", "demo", "spatial", *PAPERS)
"""All compositions of this package: also a plain one, and two that are small enough for the synthetic worlds."""


@dataclass(frozen=True, kw_only=True)
class Turns:
    """The section `turns`: fields of the method that a file may set.

    Attributes:
        max_turns: assistant turns, the answer's included.
        max_turn_tokens: tokens that may be generated in one turn; null leaves it to the response budget.
        end_on_call_error: true: a refused call ends the rollout; false: the model reads the error and goes on.
        tool_deadline_seconds: time that the initial frames, or one call, may take.
        context: which frames later turns see.
    """

    max_turns: int = 5
    max_turn_tokens: int | None = None
    end_on_call_error: bool = False
    tool_deadline_seconds: float = 300.0
    context: vt.ContextPolicy = "append"

    def __post_init__(self) -> None:
        vt.require(self, "max_turns", self.max_turns >= 1, "at least 1")
        limit = self.max_turn_tokens
        vt.require(self, "max_turn_tokens", limit is None or limit >= 1, "at least 1, or null")
        vt.require(self, "tool_deadline_seconds", self.tool_deadline_seconds > 0, "above 0")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The section `limits`: what `replay` and the planner reserve for a rollout (`Method.recipe_budget`).

    Attributes:
        prompt_tokens: of the prompt, initial frames included.
        response_tokens: of everything after it, observations included.
        images: of the whole rollout.
    """

    prompt_tokens: int = 16_384
    response_tokens: int = 16_384
    images: int = 256

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "response_tokens", "images"):
            vt.require(self, name, getattr(self, name) >= 1, "at least 1")


@dataclass(frozen=True, eq=False)
class Composition:
    """What one file says.

    Attributes:
        file: as the user named it.
        digest: 16 hexadecimal digits of its text.
        decimals: of the times in frame labels.
        prompt_file: path of the system prompt; None: the packaged one.
        prompt_values: values of further placeholders in it.
        selector: of the initial frames; None: those of the plan.
    """

    file: str
    digest: str
    about: str
    grammar: Grammar
    initial_frames: FramePlan
    selector: str | None
    tools: Mapping[str, OfferedTool]
    turns: Turns
    reward: Reward
    templates: Mapping[str, vt.Template]
    decimals: int
    prompt_file: str | None
    prompt_values: Mapping[str, str]
    limits: Limits

    @property
    def name(self) -> str:
        """Of the file, without its folder and ending."""
        return Path(self.file).stem


@cache
def load_composition(file: str) -> Composition:
    """The composition of a file; read once per process, so that no edit changes a run that is under way.

    Args:
        file: path of a YAML file, or one of the names `PACKAGED`.

    Raises:
        UsageError: it cannot be read, or something in it makes no sense; names the file, the key and what is allowed.
    """
    path = _path(file)
    text = _text(file, path)
    root = Section(file, "", _mapping(file, text))
    root.check_keys(_KEYS)
    tools = _tools(root)
    grammar = _part(root.section("grammar"), GRAMMARS, Grammar, "grammar")
    frames = root.section("initial_frames")
    messages = root.section("messages", {})
    prompt = root.section("prompt", {})
    prompt.check_keys(("file", "values"))
    values = _values(prompt.section("values", {}))
    composition = Composition(
        file=file,
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        about=root.text("about", ""),
        grammar=grammar,
        initial_frames=_part(frames.without(("selector",)), PLANS, FramePlan, "plan", "plan"),
        selector=_selector(frames),
        tools=tools,
        turns=root.section("turns", {}).build(Turns),
        reward=read_reward(root.sections("reward"), tuple(tools)),
        templates=read_templates(messages, grammar.messages),
        decimals=_decimals(messages),
        prompt_file=_prompt_file(prompt, path.parent, values),
        prompt_values=values,
        limits=root.section("limits", {}).build(Limits),
    )
    _check_whole(root, composition)
    return composition


def _path(file: str) -> Path:
    if file not in PACKAGED:
        return Path(file)
    folder = files(_PACKAGE).joinpath("papers") if file in PAPERS else files(_PACKAGE)
    return Path(str(folder.joinpath(f"{file}.yaml")))


def _text(file: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the composition {file!r}: {error}; name a YAML file, or one of: {', '.join(PACKAGED)}"
        ) from error


def _mapping(file: str, text: str) -> dict[str, Any]:
    try:
        content = OmegaConf.to_container(OmegaConf.create(text), resolve=True)
    except Exception as error:  # the file is the user's, and YAML's parser and OmegaConf have errors of many kinds
        raise UsageError(f"{file}: not a YAML file of keys and values: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not content:
        raise UsageError(f"{file}: must hold the keys {', '.join(_KEYS)}, got {content!r:.80}")
    return {str(key): value for key, value in content.items()}


def _tools(root: Section) -> dict[str, OfferedTool]:
    tools: dict[str, OfferedTool] = {}
    for section in root.sections("tools"):
        offered = read_tool(section)
        if offered.name in tools:
            raise section.fault("name", f"there is a tool {offered.name!r} already; a call could mean either")
        tools[offered.name] = offered
    return tools


def _part(section: Section, registered: Mapping[str, str], base: type, kind: str, key: str = "name") -> Any:
    """A part that is one of several kinds: `key` says which, the other keys are its fields."""
    spec = section.text(key)
    try:
        found = resolve(spec, registered, kind)
    except UsageError as error:
        raise section.fault(key, str(error)) from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise section.fault(key, f"must be a subclass of {base.__module__}.{base.__name__}, got {found!r:.80}")
    return section.without((key,)).build(found)


def _selector(section: Section) -> str | None:
    if "selector" not in section.values:
        return None
    name = section.text("selector")
    try:
        load_selector(name)
    except UsageError as error:
        raise section.fault("selector", str(error)) from error
    return name


def _prompt_file(section: Section, folder: Path, values: Mapping[str, str]) -> str | None:
    """The path of the prompt, which lies beside the composition unless it is absolute.

    Raises:
        UsageError: it cannot be read, or holds a placeholder that would stand in it unfilled.
    """
    if "file" not in section.values:
        return None
    path = str((folder / section.text("file")).resolve())
    try:
        text = read_prompt(_PACKAGE, "prompt.txt", path)
    except UsageError as error:
        raise section.fault("file", str(error)) from error
    known = (*PROMPT_VALUES, *values)
    if unfilled := [name for name in _PLACEHOLDER.findall(text) if name not in known]:
        raise section.fault(
            "file",
            f"holds {{{unfilled[0]}}}, which nothing fills; give it under prompt.values. It fills: {', '.join(known)}",
        )
    if formatted := formatted_placeholder(text, known):
        raise section.fault("file", f"holds {formatted}, which nothing fills: placeholders take no format")
    return path


def _decimals(section: Section) -> int:
    value = section.values.get("decimals", 1)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 6:
        raise section.fault("decimals", f"must be a whole number from 0 to 6, got {value!r:.80}")
    return value


def _values(section: Section) -> dict[str, str]:
    for name, value in section.values.items():
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise section.fault(str(name), f"must be a text or a number, got {value!r:.80}")
    return {name: str(value) for name, value in section.values.items()}


def _check_whole(root: Section, composition: Composition) -> None:
    """What no part can tell by itself."""
    callable_tools = composition.grammar.callable_tools
    strange = [name for name in composition.tools if callable_tools is not None and name not in callable_tools]
    if callable_tools is not None and strange:
        raise root.fault(
            "grammar.name",
            f"its turns can call {', '.join(sorted(callable_tools))} alone, and tools has {', '.join(strange)}; take "
            "the grammar hermes or tags, which call any tool, or leave the tool out",
        )
    if composition.selector is not None and isinstance(composition.initial_frames, NoFrames):
        raise root.fault(
            "initial_frames.selector", "chooses among frames, and the plan `none` shows none; leave one of the two out"
        )
    accuracies = [term for term in composition.reward.terms if term.key == "accuracy"]
    if not accuracies:
        raise root.fault(
            "reward", "has no term with the key accuracy, by which `acc` is told; `weight: 0` records it without paying"
        )
    if composition.tools and composition.turns.max_turns < 2:
        raise root.fault("turns.max_turns", "must be at least 2: there are tools, and an answer comes after a call")
