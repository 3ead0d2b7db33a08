"""Makes our config groups known to Hydra, and the resolvers that they use to OmegaConf.

The plugin calls `register` in every process that imports verl: the one that composes a run's configuration, and verl's
task runner, which resolves it. Programs that compose before they import verl call it themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from math import prod

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from verl_video_tools import config


class VideoToolsSearchPath(SearchPathPlugin):
    """Adds the package's groups behind those of the program."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("verl_video_tools", "pkg://verl_video_tools.config")


def register() -> None:
    """May be called again."""
    Plugins.instance().register(VideoToolsSearchPath)
    resolvers: dict[str, Callable[..., object]] = {
        "sum": lambda *values: sum(values),
        "product": lambda *values: prod(values),
        "divide": lambda dividend, divisor: -(-dividend // divisor),
        "path": lambda name: str(config.config_path(name)),
        "file": lambda package, name: str(files(package) / name),
        "agent_workers": config.agent_workers,
        "storage_units": config.storage_units,
        "loader_workers": config.loader_workers,
        "composition": _reserved_by_composition,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(f"video_tools.{name}", resolver, replace=True)


def _reserved_by_composition(file: str, limit: str) -> int:
    """What a composition reserves for a rollout: `prompt_tokens`, `response_tokens`, `tokens` for both, or `images`."""
    from verl_video_tools.methods import get_method

    budget = get_method("compose", file=file).recipe_budget
    return budget.prompt_tokens + budget.response_tokens if limit == "tokens" else int(getattr(budget, limit))
