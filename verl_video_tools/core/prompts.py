"""Texts that a rollout is shown: packaged prompts and message templates, and the files that users put in their place.

A released checkpoint answers best to the sentences that it was trained on. Where those are not ours, a TOML file gives
them, and the method's option `templates_file` names it:

    user = "{question}\\n\\n{frames}"
    observation = '''<tool_response>
    {frames}
    </tool_response>'''

A method declares its templates in `Method.message_templates` and writes every message by `render`.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import ClassVar, Protocol

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.messages import Content, ImagePart


def read_prompt(package: str, packaged_name: str, prompt_file: str | Path | None) -> str:
    """The text of a prompt that lies in `package`, or of the file that replaces it; white space around it is cut.

    Either is read once per process: an edit of the file changes no run that is under way.

    Raises:
        UsageError: `prompt_file` cannot be read.
    """
    return _packaged(package, packaged_name) if prompt_file is None else _text(str(prompt_file))


def file_beside(owner: type, name: str) -> Traversable:
    """A file in the folder of the module that defines a class, such as a method's. The module may lie in no package."""
    package = owner.__module__.rpartition(".")[0]
    folder = files(package) if package else Path(inspect.getfile(owner)).parent
    return folder.joinpath(name)


def prompt_digest(prompt_file: str | Path | None) -> str | None:
    """16 hexadecimal digits of the text that replaces a packaged prompt; None where the packaged one holds.

    Raises:
        UsageError: `prompt_file` cannot be read.
    """
    if prompt_file is None:
        return None
    return hashlib.sha256(_text(str(prompt_file)).encode()).hexdigest()[:16]


UNKNOWN_PROMPT = ""
"""In place of a digest where nobody has recorded under which prompt turns were written."""


def other_prompt(recorded: str | None, current: str | None) -> str | None:
    """How the system prompt of a replay differs from the recorded rollout's; None where it does not, or is unknown.

    Args:
        recorded: digest of the prompt (`prompt_digest`) in the record.
        current: the same of the method that replays it.
    """
    if recorded in (current, UNKNOWN_PROMPT):
        return None
    return f"recorded with {_in_words(recorded)}, replayed with {_in_words(current)}"


def _in_words(digest: str | None) -> str:
    return "the packaged system prompt" if digest is None else f"a prompt_file of digest {digest}"


def load_prompt(package: str, packaged_name: str, prompt_file: str | None, **values: object) -> str:
    """The packaged prompt, or the file that replaces it, with every ``{name}`` of `values` filled in.

    Other braces are left as they are, so a prompt may contain JSON.

    Raises:
        UsageError: `prompt_file` cannot be read.
    """
    text = read_prompt(package, packaged_name, prompt_file)
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text.strip()


@cache
def _packaged(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8").strip()


@cache
def _text(prompt_file: str) -> str:
    try:
        return Path(prompt_file).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read prompt_file {prompt_file!r}: {error}") from error


_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_FORMATTED = re.compile(r"\{([a-z_]+)(?:![rsa])?:[<>=^+,.\d]*[a-z%]?\}")


@dataclass(frozen=True, slots=True)
class Template:
    """The text of a message, with ``{name}`` where a value is put; all other braces, such as those of JSON, stay.

    Attributes:
        text: what holds where no file gives another one.
        once: placeholders that stand in every text for this message, exactly once.
        optional: further placeholders that a text may hold.
    """

    text: str
    once: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


class HasTemplates(Protocol):
    """What of a method (`core.method.Method`) its templates need."""

    name: ClassVar[str]

    @property
    def templates_file(self) -> str | None: ...

    def message_templates(self) -> Mapping[str, Template]: ...


def render(method: HasTemplates, name: str, **values: str | Content) -> Content:
    """The message `name` of a method, with its values put in.

    Args:
        values: a text, or texts and images, for each placeholder; those that the template does not hold are left out.
            What a value holds is put in as it is, braces too.

    Returns:
        Texts and images in reading order; no text is empty, and no two stand side by side.
    """
    text = _texts_of(method.templates_file).get(name, method.message_templates()[name].text)
    parts: list[str | ImagePart] = []
    for number, piece in enumerate(_PLACEHOLDER.split(text)):
        added = piece if number % 2 == 0 else values.get(piece, f"{{{piece}}}")
        for part in (added,) if isinstance(added, str) else added:
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            elif part != "":
                parts.append(part)
    return tuple(parts)


def check_templates(method: HasTemplates) -> None:
    """Check a method's `templates_file`.

    Raises:
        UsageError: it cannot be read, names a template that the method does not have, or a text holds its placeholders
            wrongly.
    """
    templates = method.message_templates()
    for name, text in _texts_of(method.templates_file).items():
        where = f"templates_file {method.templates_file!r}"
        if name not in templates:
            names = ", ".join(sorted(templates)) or "none"
            raise UsageError(f"{where}: {method.name} has no template {name!r}; its templates are: {names}")
        check_template_text(text, templates[name], f"{where}: {name}")


def check_template_text(text: str, template: Template, where: str) -> None:
    """Check that a text can stand in the place of a template's.

    Raises:
        UsageError: it holds the template's placeholders wrongly.
    """
    placeholders = _PLACEHOLDER.findall(text)
    for name in template.once:
        if placeholders.count(name) != 1:
            raise UsageError(f"{where} must hold {{{name}}} exactly once, got {text!r:.200}")
    if formatted := formatted_placeholder(text, (*template.once, *template.optional)):
        raise UsageError(f"{where} holds {formatted}, which nothing fills: placeholders take no format")


def formatted_placeholder(text: str, names: Collection[str]) -> str | None:
    """The first placeholder of one of these names that asks for a format, such as ``{seconds:.1f}``, and would stand
    in the message as it is; None where there is none."""
    return next((match[0] for match in _FORMATTED.finditer(text) if match[1] in names), None)


def templates_digest(templates_file: str | None) -> str | None:
    """16 hexadecimal digits of a file's texts; None where there is no file.

    Raises:
        UsageError: it cannot be read.
    """
    if templates_file is None:
        return None
    texts = sorted(_texts_of(templates_file).items())
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]


@cache
def _texts_of(templates_file: str | None) -> Mapping[str, str]:
    """The texts of a file by the names of their messages; read once per process, so that no edit changes a run."""
    if templates_file is None:
        return {}
    try:
        texts = tomllib.loads(Path(templates_file).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read templates_file {templates_file!r}: {error}") from error
    for name, text in texts.items():
        if not isinstance(text, str):
            raise UsageError(f"templates_file {templates_file!r}: {name} must be a text, got {text!r:.80}")
    return texts
