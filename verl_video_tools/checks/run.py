"""Ask every property of a method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from verl_video_tools.checks.outcome import Failed, NotApplicable
from verl_video_tools.checks.properties import PROPERTIES
from verl_video_tools.checks.registry import Property
from verl_video_tools.checks.subject import Subject
from verl_video_tools.checks.world import World
from verl_video_tools.core.config import checked_fields
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Method
from verl_video_tools.methods import method_class
from verl_video_tools.rollout.tokens import ModelTokens

Status = Literal["pass", "fail", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """What came of one property.

    Attributes:
        reason: why it failed, or was not asked; None where it holds.
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
    """Ask every property of a method, with its defaults but for `settings`.

    Args:
        method: a class, its name, or its Python path `module:Class`.
        turns: texts of turns that call or answer, beside the class attribute `check_examples`.
        settings: fields that differ from the defaults.
        model: tokens of a model; by default they are counted as about those of Qwen2.5-VL.
        folder: where the videos are made; by default a folder that is removed again.

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
    """The findings one after the other, in the order of `PROPERTIES`."""
    try:
        built = cls(**checked_fields(cls, settings or {}))
    except UsageError:
        if settings:
            raise
        yield from _not_built(cls, "the defaults are refused")
        return
    except Exception as error:
        yield from _not_built(cls, repr(error))
        return
    subject = Subject(built, world, tuple(turns), model)
    failed: set[str] = set()
    for each in PROPERTIES.values():
        finding = ask(each, subject, failed)
        if finding.status == "fail":
            failed.add(each.name)
        yield finding


def ask(each: Property, subject: Subject, failed: set[str]) -> Finding:
    """Ask one property.

    Args:
        failed: properties that were found not to hold.
    """
    if missing := sorted(_required(each) & failed):
        return Finding(each.name, each.group, "not applicable", f"not asked: {', '.join(missing)} does not hold")
    try:
        each.check(subject)
    except NotApplicable as reason:
        return Finding(each.name, each.group, "not applicable", str(reason))
    except Failed as fault:
        return Finding(each.name, each.group, "fail", str(fault))
    except Exception as error:  # the method's own code raised where no property looks for it
        return Finding(each.name, each.group, "fail", f"raises {type(error).__name__}: {error}")
    return Finding(each.name, each.group, "pass")


def _required(each: Property) -> set[str]:
    """Names of all that a property requires, directly or not."""
    return {name for direct in each.requires for name in (direct, *_required(PROPERTIES[direct]))}


def _not_built(cls: type[Method], why: str) -> Iterator[Finding]:
    first = PROPERTIES["config_has_defaults"]
    reason = f"{cls.__name__}() cannot be built ({why}); give every field a default within its range"
    yield Finding(first.name, first.group, "fail", reason)
    for each in PROPERTIES.values():
        if each is not first:
            yield Finding(each.name, each.group, "not applicable", "not asked: config_has_defaults does not hold")
