"""One module per paper, and one for no tools at all; `get_method` gives a method's frozen config by name.

A method is imported only when it is asked for, so that one method's dependencies are not another's.
"""

from __future__ import annotations

from importlib import import_module
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
"""Methods that are implemented; also the `agent_name` of a row."""


def get_method(name: str, **overrides: Any) -> Method:
    """The method `name` with its paper's defaults, except for the fields in `overrides`.

    Values may come from JSON or a Hydra config: a list stands for a tuple, a whole number for a float.

    Raises:
        UsageError: unknown method, unknown field, or a value of the wrong type or outside its range.
    """
    if name not in _METHODS:
        raise UsageError(f"there is no method {name!r}; choose one of: {', '.join(METHOD_NAMES)}")
    module_name, _, class_name = _METHODS[name].partition(":")
    method_class: type[Method] = getattr(import_module(module_name), class_name)
    return method_class(**checked_fields(method_class, overrides))
