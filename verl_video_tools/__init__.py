"""Video "look again" methods for stock verl: agent loops, tools, rewards and recipes.

Importing the package loads nothing else; see `verl_video_tools.verl_plugin.plugin` for what verl finds by entry point.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__version__ = "0.1.0"


class _MovedModules:
    """Finds modules by their names of version 0.1.0. Asked last, for names that no file has."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        if not fullname.startswith(f"{__name__}."):
            return None
        from verl_video_tools import _moved  # only where an old name is imported

        return _moved.find_spec(fullname)


sys.meta_path.append(_MovedModules)
