"""Module names of version 0.1.0 that documents and recipes gave: they work one release more, with a warning.

Nothing of ours uses them.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from importlib import abc
from importlib.machinery import ModuleSpec
from pkgutil import resolve_name
from types import CodeType, ModuleType
from typing import Any

PACKAGE = "verl_video_tools"
MOVED = {
    "agent_loop.episode": "rollout.episode",
    "agent_loop.loop": "verl_plugin.agent_loop",
    "agent_loop.worker": "verl_plugin.agent_loop_worker",
    "config": "verl_plugin.config",
    "data.export_model": "verl_plugin.export_model",
    "data.sft_dataset": "verl_plugin.sft_dataset",
    "demo": "synthetic",
    "endpoint": "services.endpoint",
    "endpoint.policy": "rollout.chat_policy",
    "errors": "core.errors",
    "evaluation.benchmarks": "data.formats",
    "judge": "services.judge",
    "lost_nodes": "verl_plugin.lost_nodes",
    "methods.fields": "core.config",
    "platforms": "verl_plugin.platforms",
    "plugin": "verl_plugin.plugin",
    "protocols": "methods.toolkit",
    "protocols.json_object": "core.json_text",
    "retrieval": "services.retrieval",
    "rewards.choices": "core.choices",
    "rewards.grading": "core.grading",
    "rewards.manager": "verl_plugin.reward_manager",
    "selectors": "methods.toolkit.selectors",
    "tools.numbers": "methods.toolkit.arguments",
    "trace": "records",
    "types": "core.types",
    "types.frames": "core.frames",
    "types.messages": "core.messages",
    "types.method": "core.method",
    "types.sample": "core.sample",
    "types.services": "core.services",
    "types.trajectory": "core.trajectory",
}
"""Old module names and new ones, below the package; a package stands for all modules in it."""

MOVED_NAMES = {
    "agent_loop.episode.Budget": "rollout.policy:BudgetCheck",
    "retrieval.RayRetriever": "verl_plugin.retrieval_actor:RayRetriever",
    "retrieval.connect": "verl_plugin.retrieval_actor:connect",
    "types.RecipeBudget": "core.types:RolloutLimits",
}
"""Names that did not go where their old module went, or that have another name now."""

LEFT = {f"demo.{name}": f"examples.tiny_models.{name}" for name in ("clip_pretrain", "evaluate", "pretrain")}
"""Programs that are no part of the package any more, and where they are in a checkout."""


def new_name(old: str) -> str | None:
    """Where the module `old` is now, both with the package's name; None where it was not moved."""
    parts = old.split(".")[1:]
    for length in range(len(parts), 0, -1):
        if target := MOVED.get(".".join(parts[:length])):
            return ".".join([PACKAGE, target, *parts[length:]])
    return None


def find_spec(fullname: str) -> ModuleSpec | None:
    """The spec of a module's old name, with the package's name; None for any other name.

    Raises:
        ModuleNotFoundError: it is a program that has left the package; names the new command.
    """
    if program := LEFT.get(fullname.removeprefix(f"{PACKAGE}.")):
        raise ModuleNotFoundError(
            f"{fullname} is no part of the package any more; run `python -m {program}` in the root of a checkout",
            name=fullname,
        )
    has_children = any(name.startswith(f"{fullname.removeprefix(f'{PACKAGE}.')}.") for name in MOVED)
    new = new_name(fullname) or (PACKAGE if has_children else None)  # `agent_loop` holds moved modules, no more
    try:
        spec = importlib.util.find_spec(new) if new else None
    except ModuleNotFoundError:  # a part of the new name is no package
        return None
    if new is None or spec is None:
        return None
    is_package = has_children or spec.submodule_search_locations is not None
    return ModuleSpec(fullname, Loader(new), is_package=is_package)


class Loader(abc.Loader):
    """Makes the module of an old name."""

    def __init__(self, new: str) -> None:
        self._new = new

    def exec_module(self, module: ModuleType) -> None:
        """Import the new module, and give the old one its names."""
        old = module.__name__
        if self._new == PACKAGE:
            return
        warnings.warn(
            f"{old} has moved to {self._new}; the old name will be gone in the next release",
            FutureWarning,
            stacklevel=2,
        )

        new = importlib.import_module(self._new)

        def look_up(name: str) -> Any:
            home = MOVED_NAMES.get(f"{old.removeprefix(f'{PACKAGE}.')}.{name}")
            return resolve_name(f"{PACKAGE}.{home}") if home else getattr(new, name)

        module.__dict__["__getattr__"] = look_up

    def get_code(self, fullname: str) -> CodeType | None:
        """For ``python -m OLD_NAME``."""
        spec = importlib.util.find_spec(self._new)
        get_code = getattr(spec.loader if spec else None, "get_code", None)
        code: CodeType | None = get_code(self._new) if get_code else None
        return code
