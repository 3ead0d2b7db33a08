"""Read a composition's YAML: mappings whose every fault names the file, the key and what is allowed.

Parts of a composition are dataclasses, and their fields are the keys: `Section.build` checks names, types and ranges by
what the classes say themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from verl_video_tools.core.config import checked_fields
from verl_video_tools.core.errors import UsageError


@dataclass(frozen=True)
class Section:
    """A mapping of the file.

    Attributes:
        file: as the user named it.
        key: where the mapping stands, such as ``tools[0]``; empty for the whole file.
        values: the mapping.
    """

    file: str
    key: str
    values: Mapping[str, Any]

    def fault(self, name: str | None, message: str) -> UsageError:
        """An error about one key of the mapping, or about all of it."""
        parts = [part for part in (self.key, name) if part]
        where = ".".join(parts)
        return UsageError(f"{self.file}: {where}: {message}" if where else f"{self.file}: {message}")

    def check_keys(self, known: Collection[str]) -> None:
        """Raises UsageError for a key that is not known; names those that are."""
        for name in self.values:
            if name not in known:
                raise self.fault(str(name), f"there is no such key; the keys here are: {', '.join(known)}")

    def section(self, name: str, default: Mapping[str, Any] | None = None) -> Section:
        """The mapping at a key.

        Raises:
            UsageError: something else stands there, or nothing does and there is no default.
        """
        value = self.values.get(name, default)
        if not isinstance(value, Mapping):
            found = "it is missing" if value is None else f"got {value!r:.80}"
            raise self.fault(name, f"must be a mapping of keys to values, {found}")
        return Section(self.file, f"{self.key}.{name}" if self.key else name, value)

    def sections(self, name: str) -> list[Section]:
        """The list of mappings at a key, empty where it is missing.

        Raises:
            UsageError: something else stands there.
        """
        value = self.values.get(name, [])
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.fault(
                name, f"must be a list, each entry a mapping that begins with `- name:`, got {value!r:.80}"
            )
        for number, entry in enumerate(value):
            if not isinstance(entry, Mapping):
                raise self.fault(
                    f"{name}[{number}]", f"must be a mapping; write `- name: {entry!s:.40}` instead of {entry!r:.80}"
                )
        return [Section(self.file, f"{name}[{number}]", entry) for number, entry in enumerate(value)]

    def text(self, name: str, default: str | None = None) -> str:
        """Raises UsageError where no text stands at a key, and there is no default."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            found = "it is missing" if value is None else f"got {value!r:.80}"
            raise self.fault(name, f"must be a text, {found}")
        return value

    def without(self, names: Collection[str]) -> Section:
        """The mapping without some keys, which are read by themselves."""
        return Section(self.file, self.key, {key: value for key, value in self.values.items() if key not in names})

    def build(self, part: Any, defaults: Mapping[str, Any] | None = None) -> Any:
        """An instance of `part`, a dataclass whose fields are the keys.

        Args:
            defaults: values of fields that the mapping leaves out.

        Raises:
            UsageError: an unknown key, a missing one, a value of the wrong type or outside its range.
        """
        if not (isinstance(part, type) and is_dataclass(part)):
            raise self.fault("name", f"must name a dataclass, got {part!r:.80}")
        given: dict[str, Any] = {}
        for name, value in self.values.items():
            try:
                given |= checked_fields(part, {name: value})
            except UsageError as error:
                raise self.fault(str(name), str(error)) from error
        values = {**(defaults or {}), **given}
        needed = [
            own.name for own in fields(part) if own.init and own.default is MISSING and own.default_factory is MISSING
        ]
        if missing := [name for name in needed if name not in values]:
            raise self.fault(missing[0], f"is missing; {part.__name__} needs {', '.join(needed)}")
        try:
            return part(**values)
        except (UsageError, ValueError) as error:
            raise self.fault(None, str(error)) from error
