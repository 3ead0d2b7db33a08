"""A composition: what a YAML file says a method is made of, read and checked as a whole before a run starts.

Every section of the file, tool, term, grammar and plan is a dataclass whose fields are its keys (`_read`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf

from verl_video_tools.core.config import checked_fields, did_you_mean, resolve
from verl_video_tools.core.prompts import check_template_text, formatted_placeholder, read_prompt
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.parts import PLANS, TERMS, FramePlan, Term

_FOLDER = Path(__file__).parent
_PLACEHOLDER = re.compile(r"(?<!\w)\{([a-z_]+)\}")  # and not \boxed{answer}

PACKAGED = ("default", "demo", "spatial")
"""Compositions of this package: a plain one, and two that are small enough for the synthetic worlds."""

PROMPT_VALUES = ("duration", "initial_frames", "max_turns", "tools")
"""Placeholders that are filled in a system prompt."""


def _yaml(text: str) -> Any:
    """The content of a YAML file as dictionaries and lists. OmegaConf refuses a key that stands twice."""
    return OmegaConf.to_container(OmegaConf.create(text), resolve=True)


TOOLS: Mapping[str, Mapping[str, Any]] = _yaml((_FOLDER / "tools.yaml").read_text(encoding="utf-8"))
"""Class and default values of each tool, by the name that calls carry."""


@dataclass(frozen=True, kw_only=True)
class Turns:
    """The section `turns`: fields of `Compose`."""

    max_turns: int = 5
    max_turn_tokens: int | None = None
    max_calls_per_turn: int = 5
    end_on_call_error: bool = False


MESSAGES: Mapping[str, vt.Template] = {
    "user": vt.Template("{question}\n\n{frames}", once=("question", "frames")),
    "frame": vt.Template("frame {index} at {seconds}s: {image}", once=("image",), optional=("index", "seconds")),
    "picture": vt.Template("{label}: {image}", once=("image", "label")),
    "observation": vt.Template("<tool_response>\n{frames}\n</tool_response>", once=("frames",)),
    "result": vt.Template("<tool_response>\n{text}\n</tool_response>", once=("text",)),
    "refusal": vt.Template("<tool_response>\nError: {error}\n</tool_response>", optional=("error",)),
}
"""The texts of all messages but the system prompt, which the section `messages` replaces. `user` follows the system
prompt; `frame` shows a whole frame and `picture` a part of one; `observation` answers a call that shows frames,
`result` one that answers in words, and `refusal` one that was refused or failed."""


@dataclass(frozen=True, kw_only=True)
class _Sections:
    """The keys of a file. Its sections are not read yet."""

    initial_frames: object
    reward: object
    tools: object = None
    turns: object = None
    messages: object = None
    prompt: str | None = None
    limits: object = field(default_factory=lambda: {"prompt_tokens": 16_384, "response_tokens": 16_384, "images": 256})


@dataclass(frozen=True, eq=False)
class Composition:
    """The content of one file.

    Attributes:
        file: as the user named it.
        digest: 16 hexadecimal digits of its text.
        descriptions: what the model reads about each tool.
        limits: what the recipe reserves for a rollout (`Method.recipe_budget`).
    """

    file: str
    digest: str
    initial_frames: FramePlan
    tools: Mapping[str, vt.Tool]
    descriptions: Mapping[str, vt.ToolDescription]
    turns: Turns
    terms: tuple[Term, ...]
    messages: Mapping[str, vt.Template]
    prompt_file: str | None
    limits: vt.RolloutLimits

    @property
    def name(self) -> str:
        """The name of the file, without its folder and suffix."""
        return Path(self.file).stem


@cache
def load_composition(file: str) -> Composition:
    """The composition of a file. Each process reads a file once, so that no edit changes a run that is under way.

    Args:
        file: path of a YAML file, or one of the names `PACKAGED`.

    Raises:
        UsageError: the file cannot be read, or a value in it is wrong; the message names the file, the key and what
            is allowed.
    """
    path = _FOLDER / f"{file}.yaml" if file in PACKAGED else Path(file)
    try:
        text = path.read_text(encoding="utf-8-sig")
        content = _yaml(text)
    except Exception as error:  # the file is the user's, and YAML's parser and OmegaConf have errors of many kinds
        raise vt.UsageError(
            f"cannot read the composition {file!r}: {' '.join(str(error).split())}; name a YAML file of keys and "
            f"values, or one of: {', '.join(PACKAGED)}"
        ) from error
    with _located(file):
        keys = _read(_Sections, content, "the file")
        tools, descriptions = _read_tools(keys.tools)
        return Composition(
            file=file,
            digest=hashlib.sha256(text.encode()).hexdigest()[:16],
            initial_frames=_read_named(FramePlan, PLANS, "plan", keys.initial_frames, "initial_frames", "plan"),
            tools=tools,
            descriptions=descriptions,
            turns=_read(Turns, keys.turns, "turns"),
            terms=_read_terms(keys.reward, tools),
            messages=_read_messages(keys.messages),
            prompt_file=None if keys.prompt is None else _prompt_file(str((path.parent / keys.prompt).resolve())),
            limits=_read(vt.RolloutLimits, keys.limits, "limits"),
        )


def _read_tools(entries: object) -> tuple[dict[str, vt.Tool], dict[str, vt.ToolDescription]]:
    paths = {name: entry["class"] for name, entry in TOOLS.items()}
    tools: dict[str, vt.Tool] = {}
    descriptions: dict[str, vt.ToolDescription] = {}
    for where, entry in _entries(entries, "tools"):
        defaults = {key: value for key, value in TOOLS.get(str(entry.get("name")), {}).items() if key != "class"}
        values = {**defaults, **entry}
        about = values.pop("about", None)
        tool: vt.Tool = _read_named(object, paths, "tool", values, where)
        description = getattr(tool, "description", None)
        if not isinstance(description, vt.ToolDescription) or not callable(getattr(tool, "plan", None)):
            raise vt.UsageError(f"{where}.name: a tool has a method `plan` and a `description`, got {entry['name']!r}")
        if tool.name in tools:
            raise vt.UsageError(f"{where}.name: there is a tool {tool.name!r} already; leave one of them out")
        tools[tool.name] = tool
        descriptions[tool.name] = replace(
            description,
            description=description.description if about is None else str(about),
            # A composition never tells the path of the video, and a tool takes the row's.
            parameters={key: value for key, value in description.parameters.items() if key != "video_path"},
        )
    return tools, descriptions


def _read_terms(entries: object, tools: Collection[str]) -> tuple[Term, ...]:
    numbered = _entries(entries, "reward")
    terms = tuple(
        _read_named(Term, TERMS, "reward term", {"key": entry.get("name"), **entry}, where) for where, entry in numbered
    )
    keys = [term.key for term in terms]
    for number, ((where, _), term) in enumerate(zip(numbered, terms, strict=True)):
        if not term.key.isidentifier() or term.key in (*keys[:number], "score", "acc", "flagged"):
            raise vt.UsageError(f"{where}.key: must be a word that no other term has as its key, got {term.key!r}")
        if not math.isfinite(term.weight):
            raise vt.UsageError(f"{where}.weight: must be a finite number, got {term.weight}")
        if term.gate != "all":
            _check_names(term.gate, keys[number + 1 :], f"{where}.gate", "term further down")
        _check_names(getattr(term, "tools", ()), tools, f"{where}.tools", "tool in this file")
    accuracy = [term.weight for term in terms if term.key == "accuracy"]
    if not accuracy or accuracy[0] <= 0:
        raise vt.UsageError("reward: must have a term `accuracy` with a weight above 0, because `acc` is read from it")
    return terms


def _read_messages(texts: object) -> dict[str, vt.Template]:
    """All messages. The texts of the file replace the packaged ones."""
    replacements = _mapping({} if texts is None else texts, "messages")
    _check_names(replacements, MESSAGES, "messages", "message")
    templates = dict(MESSAGES)
    for name, text in replacements.items():
        where, template = f"messages.{name}", MESSAGES[name]
        if not isinstance(text, str):
            raise vt.UsageError(f"{where} must be a text, got {text!r:.80}")
        check_template_text(text, template, where)
        _check_placeholders(text, (*template.once, *template.optional), where)
        templates[name] = replace(template, text=text)
    return templates


# ------------------------------------------------------------------------------------------------- reading any section

Part = TypeVar("Part")


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Put the place in the file before the message of an error."""
    try:
        yield
    except vt.UsageError as error:
        raise vt.UsageError(f"{where}: {error}") from error


def _mapping(values: object, where: str) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise vt.UsageError(f"{where} takes keys and values, such as {{key: value}}, got {values!r:.80}")
    return {str(key): value for key, value in values.items()}


def _entries(values: object, where: str) -> list[tuple[str, dict[str, Any]]]:
    """The mappings of a list, each with its place in the file."""
    if values is not None and not isinstance(values, list):
        raise vt.UsageError(f"{where} takes a list of `- {{name: ...}}`, got {values!r:.80}")
    places = [(f"{where}[{number}]", entry) for number, entry in enumerate(values or [])]
    return [(place, _mapping(entry, place)) for place, entry in places]


def _read(part: type[Part], values: object, where: str) -> Part:
    """An instance of a dataclass from its keys in the file.

    Args:
        values: None if the file has no such section.

    Raises:
        UsageError: an unknown key, a missing one, or a value of the wrong type or outside its range.
    """
    checked = checked_fields(part, _mapping({} if values is None else values, where), where)
    # Every part is a dataclass, for which `typing` has no bound.
    for key in fields(part):  # type: ignore[arg-type]
        if key.name not in checked and key.default is MISSING and key.default_factory is MISSING:
            raise vt.UsageError(f"{where}: the key {key.name} is missing")
    with _located(where):
        return part(**checked)


def _read_named(
    base: type[Any], registered: Mapping[str, str], kind: str, values: object, where: str, key: str = "name"
) -> Any:
    """A part that is one of several: `key` names its class, and the other keys are its fields.

    Raises:
        UsageError: there is no such part; also as `_read` raises it.
    """
    fields_of_part = _mapping(values, where)
    name = str(fields_of_part.pop(key, None))
    if ":" not in name:
        _check_names([name], registered, f"{where}.{key}", kind)
    with _located(f"{where}.{key}"):
        part = resolve(name, registered, kind)
        if not (isinstance(part, type) and issubclass(part, base) and is_dataclass(part)):
            raise vt.UsageError(f"must name a dataclass that is a subclass of {base.__name__}, got {part!r:.80}")
    return _read(part, fields_of_part, where)


def _check_names(names: Collection[str], allowed: Collection[str], where: str, kind: str) -> None:
    for name in names:
        if name not in allowed:
            advice = f"choose among {', '.join(allowed)}" if allowed else "there is none"
            raise vt.UsageError(f"{where}: there is no {kind} {name!r}; {advice}{did_you_mean(name, allowed)}")


def _check_placeholders(text: str, placeholders: Collection[str], where: str) -> None:
    _check_names(_PLACEHOLDER.findall(text), placeholders, where, "placeholder")
    if formatted := formatted_placeholder(text, placeholders):
        raise vt.UsageError(f"{where}: holds {formatted}; placeholders take no format")


def _prompt_file(path: str) -> str:
    _check_placeholders(read_prompt(__package__, "prompt.txt", path), PROMPT_VALUES, "prompt")
    return path
