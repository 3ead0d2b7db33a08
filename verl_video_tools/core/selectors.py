"""Load a user's own selector of the frames shown with the question."""

from __future__ import annotations

from importlib import import_module

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.tool import FrameSelector


def load_selector(path: str) -> FrameSelector:
    """The selector at a Python path such as `package.module:function`.

    Raises:
        UsageError: there is none.
    """
    module_name, _, name = path.partition(":")
    try:
        selector: FrameSelector = getattr(import_module(module_name), name)
        if not callable(selector):
            raise TypeError(f"{selector!r:.80} is no function")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"first_look_selector={path!r}: {error}; write it as package.module:function, importable on every node"
        ) from error
    return selector
