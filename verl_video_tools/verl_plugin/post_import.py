"""Import one module right after another one has been imported, and not before.

Registries of verl live in modules that are too heavy to import in every process (they pull in vLLM), and some are read
in the same statement that imports them. Python's import machinery offers a place in between: a finder on
`sys.meta_path` that hands out the ordinary module and runs one more import once it is loaded. Nothing of the imported
module is changed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def import_after(trigger: str, module: str) -> None:
    """Import `module` as soon as `trigger` has been imported; at once if it already is."""
    if trigger in sys.modules and not _is_loading(sys.modules[trigger]):
        importlib.import_module(module)
    else:
        sys.meta_path.insert(0, _Finder(trigger, module))


def _is_loading(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))


class _Finder(MetaPathFinder):
    def __init__(self, trigger: str, module: str) -> None:
        self.trigger, self.module = trigger, module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.trigger:
            return None
        sys.meta_path.remove(self)  # once is enough, and the lookup below must not come back here
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.module)
        return spec


class _Loader(Loader):
    """The module's own loader, followed by one import."""

    def __init__(self, loader: Loader, module: str) -> None:
        self._loader, self._module = loader, module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        importlib.import_module(self._module)

    def __getattr__(self, name: str) -> Any:  # inspect and importlib.resources ask the real loader
        return getattr(self._loader, name)
