"""Templates of the messages that a rollout is shown, and the file that a user puts in their place.

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
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Protocol

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.messages import Content, ImagePart

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
    known = method.message_templates()
    for name, text in _texts_of(method.templates_file).items():
        where = f"templates_file {method.templates_file!r}"
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise UsageError(f"{where}: {method.name} has no template {name!r}; its templates are: {names}")
        template = known[name]
        held = _PLACEHOLDER.findall(text)
        wrong = [held_name for held_name in template.once if held.count(held_name) != 1]
        if wrong:
            raise UsageError(f"{where}: {name} must hold {{{wrong[0]}}} exactly once, got {text!r:.200}")
        if formatted := formatted_placeholder(text, (*template.once, *template.optional)):
            raise UsageError(f"{where}: {name} holds {formatted}, which nothing fills: placeholders take no format")


def formatted_placeholder(text: str, names: Collection[str]) -> str | None:
    """The first placeholder of one of these names that asks for a format, such as ``{seconds:.1f}``, and would stand
    in the message as it is; None where there is none."""
    return next((found[0] for found in _FORMATTED.finditer(text) if found[1] in names), None)


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
