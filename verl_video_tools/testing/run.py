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
from verl_video_tools.testing.subject import PROPERTIES as PROPERTIES
from verl_video_tools.testing.subject import Failed, NotApplicable, Property, Subject
from verl_video_tools.testing.world import World

Status = Literal["pass", "fail", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """The result of one property.

    Attributes:
        reason: why the property failed or was not checked; None if it holds.
        cause: the failed property without which this one was not checked, if there is one.
    """

    property: str
    group: str
    status: Status
    reason: str | None = None
    cause: str | None = None


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
        UsageError: there is no such method or field, or the class cannot be built by its name, as a run does.
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
    """The findings one by one, in the order of `PROPERTIES`."""
    try:
        built = cls(**checked_fields(cls, settings or {}))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{cls.__name__}() raises {error!r}; give every field a valid default") from error
    subject = Subject(built, world, tuple(turns), model)
    broken: dict[str, str] = {}
    for each in PROPERTIES.values():
        yield check(each, subject, broken)


def check(each: Property, subject: Subject, broken: dict[str, str]) -> Finding:
    """Check one property.

    Args:
        broken: properties that do not hold or were not checked, each with the failed property that is the cause. If
            this property does not hold, it is added.
    """
    if causes := [broken[name] for name in each.requires if name in broken]:
        broken[each.name] = causes[0]
        reason = f"not checked: {causes[0]} does not hold"
        return Finding(each.name, each.group, "not applicable", reason, causes[0])
    try:
        each.check(subject)
    except NotApplicable as reason:
        return Finding(each.name, each.group, "not applicable", str(reason))
    except Failed as error:
        fault = str(error)
    except Exception as error:  # the method's own code raises where the property does not expect it
        fault = f"raises {type(error).__name__}: {error}"
    else:
        return Finding(each.name, each.group, "pass")
    broken[each.name] = each.name
    return Finding(each.name, each.group, "fail", fault)
