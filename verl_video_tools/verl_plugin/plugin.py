"""Entry point of the group `verl.plugins`: verl imports this module at the end of `import verl`, in every process.

It therefore imports nothing heavy. Agent loops (YAML file of `vvt path agent-loops`) and the reward manager
(`pkg://verl_video_tools.verl_plugin.reward_manager`) are loaded by verl itself, where they are used. The trainers must
be in the registry before verl looks a name up there, in a process that has imported nothing else of ours, so they are
imported right after verl's own are: see `post_import`.

verl logs a plugin's failure at DEBUG level only and goes on; here it is written to stderr with the fix.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points, version
from typing import NamedTuple

from verl_video_tools.core.errors import SetupError
from verl_video_tools.verl_plugin.hydra_groups import register
from verl_video_tools.verl_plugin.marked_warnings import activate_if_enabled
from verl_video_tools.verl_plugin.post_import import import_after

SUPPORTED_VERL_VERSION = "0.9.1"
TRAINER_NAMES = ("video_tools", "video_tools_colocate_async", "video_tools_separate_async")
REWARD_MANAGER_PATH = "pkg://verl_video_tools.verl_plugin.reward_manager"
REWARD_MANAGER_NAME = "VideoToolsRewardManager"


class Registration(NamedTuple):
    """One thing that verl must be able to find, and whether it does (for `vvt doctor`)."""

    kind: str
    name: str
    ok: bool
    detail: str


def load() -> None:
    """Register everything that verl looks up by name.

    Raises:
        SetupError: the installed verl is not the version that this plugin is built for.
    """
    installed = version("verl")
    if installed != SUPPORTED_VERL_VERSION:
        raise SetupError(
            f"verl_video_tools needs verl=={SUPPORTED_VERL_VERSION}, found {installed}; "
            f"install it with: pip install verl=={SUPPORTED_VERL_VERSION}"
        )
    activate_if_enabled()
    register()
    # A library below vLLM's server sets the root logger to this level when verl's trainer imports it; its default,
    # ERROR, would hide our warnings there.
    os.environ.setdefault("SAGEMAKER_CONTAINER_LOG_LEVEL", os.environ.get("LOG_LEVEL", "WARNING"))
    if os.environ.get("VERL_PLATFORM") == "cpu":
        from verl_video_tools.verl_plugin.platforms import cpu

        cpu.activate()
    import_after("verl.workers.engine", "verl_video_tools.verl_plugin.fsdp_engine")
    import_after("verl.workers.rollout.replica", "verl_video_tools.verl_plugin.platforms.vllm_replica")
    import_after("verl.trainer.ppo.v1", "verl_video_tools.verl_plugin.trainer")


def registrations() -> list[Registration]:
    """Look everything up as verl would. Heavy: imports verl's trainer."""
    from hydra.utils import get_class
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.import_utils import load_extern_object

    from verl_video_tools.config import agent_loop_targets, config_path

    def qualname(lookup: Callable[..., type], *names: str) -> str:
        return lookup(*names).__qualname__

    def entry_point() -> str:
        values = [point.value for point in entry_points(group="verl.plugins") if point.name == "verl_video_tools"]
        if not values:
            raise SetupError("the distribution's entry point is missing; reinstall with: make install")
        return values[0]

    targets = agent_loop_targets(config_path("agent-loops"))
    manager = partial(qualname, load_extern_object, REWARD_MANAGER_PATH, REWARD_MANAGER_NAME)
    lookups: list[tuple[str, str, Callable[[], str]]] = [
        ("entry point", "verl.plugins: verl_video_tools", entry_point),
        *(("trainer", name, partial(qualname, get_trainer_cls, name)) for name in TRAINER_NAMES),
        ("reward manager", REWARD_MANAGER_NAME, manager),
        *(("agent loop", name, partial(qualname, get_class, target)) for name, target in targets.items()),
    ]
    results = []
    for kind, name, lookup in lookups:
        try:
            results.append(Registration(kind, name, True, lookup()))
        except Exception as error:  # the point is to report whatever goes wrong, by name
            results.append(Registration(kind, name, False, f"{type(error).__name__}: {error}"))
    return results


try:
    load()
except Exception as error:
    print(
        f"[verl_video_tools] the plugin could not be loaded: {type(error).__name__}: {error}\n"
        f"[verl_video_tools] run `vvt doctor` for what is missing and how to fix it",
        file=sys.stderr,
        flush=True,
    )
    raise
