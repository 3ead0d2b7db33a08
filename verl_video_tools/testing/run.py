"""Check every property of a method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from verl_video_tools.core.config import checked_fields
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Method
from verl_video_tools.methods import method_class
from verl_video_tools.rollout.tokens import ModelTokens
from verl_video_tools.testing import config_and_prompt as config_and_prompt
from verl_video_tools.testing import grammar_and_tools as grammar_and_tools
from verl_video_tools.testing import rollout_and_reward as rollout_and_reward
from verl_video_tools.testing.subject import PROPERTIES, Failed, NotApplicable, Property, Subject
from verl_video_tools.testing.world import World

Status = Literal["pass", "fail", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """The result of one property.

    Attributes:
        reason: why the property failed or was not checked; None if it holds.
    """

    property: str
    group: str
    status: Status
    reason: str | None = None


def check_method(
    method: str | type[Method],
    *,
    turns: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    model: ModelTokens | None = None,
    folder: Path | None = None,
) -> list[Finding]:
    """Check every property of a method, with its default fields except for `settings`.

    Args:
        method: a class, its name, or its Python path `module:Class`.
        turns: example turns beside those of the class attribute `check_examples`.
        settings: fields that differ from the defaults.
        model: a model's tokens; by default they are estimated for Qwen2.5-VL.
        folder: where the video is rendered; by default a temporary folder.

    Raises:
        UsageError: there is no such method or field.
    """
    cls = method if isinstance(method, type) else method_class(method)
    if folder is None:
        with TemporaryDirectory(prefix="check_method_") as made:
            return list(findings(cls, World(Path(made)), turns, settings, model))
    return list(findings(cls, World(folder), turns, settings, model))


def findings(
    cls: type[Method],
    world: World,
    turns: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    model: ModelTokens | None = None,
) -> Iterator[Finding]:
    """The findings one by one, in the order in which properties are checked."""
    try:
        built = cls(**checked_fields(cls, settings or {}))
    except Exception as error:
        if settings and isinstance(error, UsageError):
            raise
        first = PROPERTIES["config_has_defaults"]
        yield Finding(first.name, first.group, "fail", f"{cls.__name__}() raises {error!r}; give valid defaults")
        for each in PROPERTIES.values():
            if each is not first:
                yield Finding(each.name, each.group, "not applicable", f"not checked: {first.name} does not hold")
        return
    subject = Subject(built, world, tuple(turns), model)
    failed: set[str] = set()
    for each in in_order():
        finding = check(each, subject, failed)
        if finding.status == "fail":
            failed.add(each.name)
        yield finding


def in_order() -> list[Property]:
    """All properties, each after those that it requires."""
    ordered: dict[str, Property] = {}

    def add(name: str) -> None:
        for required in PROPERTIES[name].requires:
            add(required)
        ordered.setdefault(name, PROPERTIES[name])

    for name in PROPERTIES:
        add(name)
    return list(ordered.values())


def check(each: Property, subject: Subject, failed: set[str]) -> Finding:
    """Check one property.

    Args:
        failed: names of properties that do not hold.
    """
    if missing := sorted(_required(each) & failed):
        return Finding(each.name, each.group, "not applicable", f"not checked: {', '.join(missing)} does not hold")
    try:
        each.check(subject)
    except NotApplicable as reason:
        return Finding(each.name, each.group, "not applicable", str(reason))
    except Failed as fault:
        return Finding(each.name, each.group, "fail", str(fault))
    except Exception as error:  # the method's own code raises where the property does not expect it
        return Finding(each.name, each.group, "fail", f"raises {type(error).__name__}: {error}")
    return Finding(each.name, each.group, "pass")


def _required(each: Property) -> set[str]:
    """Names of all properties that this one requires, directly or not."""
    return {name for direct in each.requires for name in (direct, *_required(PROPERTIES[direct]))}
