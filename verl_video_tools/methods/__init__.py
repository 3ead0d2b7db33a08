"""One module per paper, and one for no tools at all; `get_method` gives a method's frozen config by name.

A method is imported only when it is asked for, so that one method's dependencies are not another's. Other installed
distributions may bring methods of their own, as entry points of the group `verl_video_tools.methods` whose name is the
method's: every process of a run, on every node, then knows them (`examples/add_a_method`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from verl_video_tools.core.config import checked_fields, resolve
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import Method

REGISTERED = {
    "framethinker": "verl_video_tools.methods.framethinker.method:FrameThinker",
    "videozoomer": "verl_video_tools.methods.videozoomer.method:VideoZoomer",
    "longvt": "verl_video_tools.methods.longvt.method:LongVT",
    "framemind": "verl_video_tools.methods.framemind.method:FrameMind",
    "direct": "verl_video_tools.methods.direct.method:Direct",
    "videobrain": "verl_video_tools.methods.videobrain.method:VideoBrain",
    "compose": "verl_video_tools.methods.compose.method:Compose",
}
"""Python path of each method by its name. A module that every process imports (VERL_USE_EXTERNAL_MODULES) may add
its own; an installed distribution does it by entry point."""

METHOD_NAMES: tuple[str, ...] = tuple(REGISTERED)
"""Methods of this package; also the `agent_name` of a row."""

ENTRY_POINT_GROUP = "verl_video_tools.methods"


def method_names() -> tuple[str, ...]:
    """All methods that there are: those of this package, then those of other installed distributions.

    Raises:
        UsageError: a distribution brings a method under a name that is taken.
    """
    return (*REGISTERED, *installed_methods())


@cache
def installed_methods() -> dict[str, EntryPoint]:
    """Methods of other distributions by name. Nothing is imported.

    Raises:
        UsageError: as `method_names`.
    """
    installed: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name in REGISTERED or point.name in installed:
            owner = point.dist.name if point.dist is not None else point.value
            raise UsageError(f"the distribution {owner!r} brings a method {point.name!r}, and there is one already")
        installed[point.name] = point
    return installed


def get_method(name: str, **overrides: Any) -> Method:
    """The method `name` with its paper's defaults, except for the fields in `overrides`.

    Values may come from JSON or a Hydra config: a list stands for a tuple, a whole number for a float.

    Args:
        name: one of `method_names`, or the Python path of a class, such as `my_module:MyMethod`.
        overrides: by name, also as a run's configuration has it (`short_names`).

    Raises:
        UsageError: unknown method, unknown field, or a value of the wrong type or outside its range.
    """
    config_class = method_class(name)
    return config_class(**checked_fields(config_class, short_names(config_class.name, overrides)))


def short_names(method: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a method by their own names: `initial_frames` of `video_tools.longvt.initial_frames`."""
    return {name.removeprefix(f"video_tools.{method}."): value for name, value in fields.items()}


def method_class(name: str) -> type[Method]:
    """The class of a method, by its name or Python path.

    Raises:
        UsageError: there is none, or it is no subclass of `Method`.
    """
    installed = {} if name in REGISTERED else installed_methods()
    paths = REGISTERED | {name: point.value for name, point in installed.items()}
    config_class = resolve(name, paths, "method")
    if not (isinstance(config_class, type) and issubclass(config_class, Method)):
        raise UsageError(f"the method {name!r} must be a subclass of Method, got {config_class!r:.80}")
    if name in installed and config_class.name != name:
        raise UsageError(f"{installed[name].value!r} must be a Method whose `name` is the entry point's, {name!r}")
    return config_class
