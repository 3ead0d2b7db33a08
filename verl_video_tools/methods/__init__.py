"""One module per paper, and one for no tools at all; `get_method` gives a method's frozen config by name.

A method is imported only when it is asked for, so that one method's dependencies are not another's. Other installed
distributions may bring methods of their own, as entry points of the group `verl_video_tools.methods` whose name is the
method's: every process of a run, on every node, then knows them (`examples/add_a_method`).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from verl_video_tools.errors import UsageError
from verl_video_tools.methods.fields import checked_fields
from verl_video_tools.types import Method

_METHODS = {
    "framethinker": "verl_video_tools.methods.framethinker:FrameThinker",
    "videozoomer": "verl_video_tools.methods.videozoomer:VideoZoomer",
    "longvt": "verl_video_tools.methods.longvt:LongVT",
    "framemind": "verl_video_tools.methods.framemind:FrameMind",
    "direct": "verl_video_tools.methods.direct:Direct",
    "videobrain": "verl_video_tools.methods.videobrain:VideoBrain",
}

METHOD_NAMES: tuple[str, ...] = tuple(_METHODS)
"""Methods of this package; also the `agent_name` of a row."""

ENTRY_POINT_GROUP = "verl_video_tools.methods"


def method_names() -> tuple[str, ...]:
    """All methods that there are: those of this package, then those of other installed distributions.

    Raises:
        UsageError: a distribution brings a method under a name that is taken.
    """
    return (*_METHODS, *installed_methods())


@cache
def installed_methods() -> dict[str, EntryPoint]:
    """Methods of other distributions by name. Nothing is imported.

    Raises:
        UsageError: as `method_names`.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name in _METHODS or point.name in found:
            owner = point.dist.name if point.dist is not None else point.value
            raise UsageError(f"the distribution {owner!r} brings a method {point.name!r}, and there is one already")
        found[point.name] = point
    return found


def get_method(name: str, **overrides: Any) -> Method:
    """The method `name` with its paper's defaults, except for the fields in `overrides`.

    Values may come from JSON or a Hydra config: a list stands for a tuple, a whole number for a float.

    Raises:
        UsageError: unknown method, unknown field, or a value of the wrong type or outside its range.
    """
    method_class = _method_class(name)
    return method_class(**checked_fields(method_class, overrides))


def _method_class(name: str) -> type[Method]:
    if name in _METHODS:
        module_name, _, class_name = _METHODS[name].partition(":")
        packaged: type[Method] = getattr(import_module(module_name), class_name)
        return packaged
    point = installed_methods().get(name)
    if point is None:
        raise UsageError(f"there is no method {name!r}; choose one of: {', '.join(method_names())}")
    try:
        method_class = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the method {name!r} cannot be loaded from {point.value!r}: {error}") from error
    if not (isinstance(method_class, type) and issubclass(method_class, Method) and method_class.name == name):
        raise UsageError(f"{point.value!r} must be a subclass of Method whose `name` is the entry point's, {name!r}")
    return method_class
