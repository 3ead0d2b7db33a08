"""A composition: what a YAML file says a method is made of, read and checked as a whole before a run starts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.prompt_files import read_prompt
from verl_video_tools.core.templates import formatted_placeholder
from verl_video_tools.core.tool import load_selector
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.grammar import GRAMMARS, Grammar
from verl_video_tools.methods.compose.parts import (
    PLANS,
    FramePlan,
    NoFrames,
    OfferedTool,
    build,
    located,
    named,
    named_part,
    read_tool,
    without,
)
from verl_video_tools.methods.compose.reward import Reward, read_reward

_PLACEHOLDER = re.compile(r"(?<!\w)\{([a-z_]+)\}")  # and not \boxed{answer}

PACKAGED = ("default", "demo", "spatial")
"""Compositions of this package: a plain one, and two that are small enough for the synthetic worlds."""

PROMPT_VALUES = ("duration", "initial_frames", "max_turns", "max_calls", "thought", "tools")
"""Placeholders that are filled in every system prompt."""

TEMPLATES: Mapping[str, vt.Template] = {
    "user": vt.Template(
        "{question}\n\n{frames}", once=("question", "frames"), optional=("duration", "num_frames", "fps")
    ),
    "frame": vt.Template("frame {index} at {seconds}s: {image}", once=("image",), optional=("index", "seconds")),
    "picture": vt.Template("{label}: {image}", once=("image", "label")),
    "observation": vt.Template("{frames}", once=("frames",)),
    "result": vt.Template("{text}", once=("text",)),
    "refusal": vt.Template("Error: {error}", optional=("error",)),
}
"""The messages of a composition.

| name | written |
|---|---|
| `user` | after the system prompt |
| `frame` | for each whole frame |
| `picture` | for a picture of a part of a frame, or of several frames |
| `observation` | after a call that shows frames |
| `result` | after a call that shows none: its text, else its result |
| `refusal` | after a call that was refused or failed |
"""


TURNS = ("max_turns", "max_turn_tokens", "end_on_call_error", "tool_deadline_seconds", "context")
"""The keys of the section `turns`: fields of the method."""

_KINDS: Mapping[str, type] = {
    "about": str,
    "grammar": dict,
    "initial_frames": dict,
    "tools": list,
    "turns": dict,
    "reward": list,
    "messages": dict,
    "prompt": dict,
    "limits": dict,
}
_KIND_NAMES: Mapping[type, str] = {str: "a text", dict: "a mapping of keys to values", list: "a list of mappings"}
_LIMITS = {"prompt_tokens": 16_384, "response_tokens": 16_384, "images": 256}


@dataclass(frozen=True, eq=False)
class Composition:
    """What one file says.

    Attributes:
        file: as the user named it.
        digest: 16 hexadecimal digits of its text.
        selector: of the initial frames; None: those of the plan.
        decimals: of the times in frame labels.
        limits: what the recipe reserves for a rollout (`Method.recipe_budget`).
    """

    file: str
    digest: str
    about: str
    grammar: Grammar
    initial_frames: FramePlan
    selector: str | None
    tools: Mapping[str, OfferedTool]
    turns: Mapping[str, Any]
    reward: Reward
    templates: Mapping[str, vt.Template]
    decimals: int
    prompt_file: str | None
    prompt_values: Mapping[str, str]
    limits: vt.RolloutLimits

    @property
    def name(self) -> str:
        """Of the file, without its folder and ending."""
        return Path(self.file).stem

    def method_fields(self) -> dict[str, Any]:
        """The fields of `Compose` that the file sets beside `turns`."""
        return {
            "accuracy_reward": self.reward.weight("accuracy"),
            "initial_frames_selector": self.selector,
            "prompt_file": self.prompt_file,
        }


@cache
def load_composition(file: str) -> Composition:
    """The composition of a file; read once per process, so that no edit changes a run that is under way.

    Args:
        file: path of a YAML file, or one of the names `PACKAGED`.

    Raises:
        UsageError: it cannot be read, or something in it makes no sense; names the file, the key and what is allowed.
    """
    path = Path(str(files(__package__).joinpath(f"{file}.yaml"))) if file in PACKAGED else Path(file)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the composition {file!r}: {error}; name a YAML file, or one of: {', '.join(PACKAGED)}"
        ) from error
    with located(file):
        return _read(file, path.parent, text)


def _read(file: str, folder: Path, text: str) -> Composition:
    keys = _keys(text)
    tools = _tools(keys.get("tools", []))
    grammar = named_part(keys["grammar"], GRAMMARS, Grammar, "grammar", "grammar")
    plan = named_part(
        without(keys["initial_frames"], "selector"), PLANS, FramePlan, "plan", "initial_frames", key="plan"
    )
    turns, prompt, messages = (keys.get(name, {}) for name in ("turns", "prompt", "messages"))
    _check_names("turns", turns, TURNS)
    _check_names("prompt", prompt, ("file", "values"))
    values = prompt.get("values", {})
    if not isinstance(values, dict):
        raise UsageError(f"prompt.values: must be {_KIND_NAMES[dict]}, got {values!r:.80}")
    return Composition(
        file=file,
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        about=keys.get("about", ""),
        grammar=grammar,
        initial_frames=plan,
        selector=_selector(keys["initial_frames"], plan),
        tools=tools,
        turns=turns,
        reward=read_reward(_entries("reward", keys["reward"]), tuple(tools)),
        templates=_templates(messages, grammar.messages),
        decimals=_decimals(messages.get("decimals", 1)),
        prompt_file=_prompt_file(named(prompt, "file"), folder, values) if "file" in prompt else None,
        prompt_values={name: str(value) for name, value in values.items()},
        limits=build(vt.RolloutLimits, keys.get("limits", {}), "limits", _LIMITS),
    )


def _keys(text: str) -> dict[str, Any]:
    try:
        content = OmegaConf.to_container(OmegaConf.create(text), resolve=True)
    except Exception as error:  # the file is the user's, and YAML's parser and OmegaConf have errors of many kinds
        raise UsageError(f"not a YAML file of keys and values: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UsageError(f"must be {_KIND_NAMES[dict]}, got {content!r:.80}")
    keys = {str(key): value for key, value in content.items()}
    _check_names("", keys, _KINDS)
    for name, kind in _KINDS.items():
        if name not in keys and name in ("grammar", "initial_frames", "reward"):
            raise UsageError(f"{name}: is missing, {_KIND_NAMES[kind]}")
        if not isinstance(keys.get(name, kind()), kind):
            raise UsageError(f"{name}: must be {_KIND_NAMES[kind]}, got {keys[name]!r:.80}")
    return keys


def _check_names(section: str, values: Collection[str], known: Collection[str]) -> None:
    if unknown := [name for name in values if name not in known]:
        where = f"{section}.{unknown[0]}" if section else unknown[0]
        raise UsageError(f"{where}: there is no such key; the keys here are: {', '.join(known)}")


def _entries(name: str, entries: list[Any]) -> list[Mapping[str, Any]]:
    for number, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise UsageError(f"{name}[{number}]: must be a mapping; write `- name: {entry!s:.40}`, got {entry!r:.80}")
    return entries


def _tools(entries: list[Any]) -> dict[str, OfferedTool]:
    tools: dict[str, OfferedTool] = {}
    for number, entry in enumerate(_entries("tools", entries)):
        offered = read_tool(entry, f"tools[{number}]")
        if offered.name in tools:
            raise UsageError(f"tools[{number}].name: there is a tool {offered.name!r} already; leave one of them out")
        tools[offered.name] = offered
    return tools


def _selector(values: Mapping[str, Any], plan: FramePlan) -> str | None:
    if "selector" not in values:
        return None
    with located("initial_frames.selector"):
        name = named(values, "selector")
        load_selector(name)
        if isinstance(plan, NoFrames):
            raise UsageError("chooses among frames, and the plan `none` shows none; leave one of the two out")
    return name


def _templates(given: Mapping[str, Any], of_grammar: Mapping[str, str]) -> dict[str, vt.Template]:
    """All templates, by name: those of the section `messages`, else the grammar's, else the defaults."""
    _check_names("messages", given, (*TEMPLATES, "decimals"))
    templates = {}
    for name, known in TEMPLATES.items():
        with located(f"messages.{name}"):
            text = named({name: known.text, **of_grammar, **given}, name)
            if wrong := [placeholder for placeholder in known.once if text.count(f"{{{placeholder}}}") != 1]:
                raise UsageError(f"must hold {{{wrong[0]}}} exactly once, got {text!r:.80}")
            _check_placeholders(text, (*known.once, *known.optional))
        templates[name] = vt.Template(text, known.once, known.optional)
    return templates


def _check_placeholders(text: str, known: Collection[str]) -> None:
    unfilled = [f"{{{name}}}" for name in _PLACEHOLDER.findall(text) if name not in known]
    if wrong := next(iter(unfilled), None) or formatted_placeholder(text, known):
        raise UsageError(f"holds {wrong}, which nothing fills; it may hold, without a format: {', '.join(known)}")


def _decimals(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 6:
        raise UsageError(f"messages.decimals: must be a whole number from 0 to 6, got {value!r:.80}")
    return value


def _prompt_file(name: str, folder: Path, values: Collection[str]) -> str:
    """The path of the system prompt, which lies beside the composition unless it is absolute."""
    path = str((folder / name).resolve())
    with located("prompt.file"):
        _check_placeholders(read_prompt(__package__, "prompt.txt", path), (*PROMPT_VALUES, *values))
    return path
