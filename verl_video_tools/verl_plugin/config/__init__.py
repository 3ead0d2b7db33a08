"""Files that verl's configuration points at; `vvt path NAME` prints where they are."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from verl_video_tools.core.errors import UsageError

_FILES = {
    "agent-loops": "agent_loops.yaml",
    "tools": "tools.yaml",
    "group-router": "group_router.yaml",
    "hermes-template": "chat_templates/hermes_tools.jinja",
    "longvt-template": "chat_templates/longvt_released.jinja",
}


def agent_loop_targets(path: Path | str) -> dict[str, str]:
    """Names and classes of a verl agent-loop file (a YAML list of entries with `name` and `_target_`)."""
    from omegaconf import OmegaConf

    entries = OmegaConf.to_container(OmegaConf.load(path)) or []
    return {str(entry["name"]): str(entry["_target_"]) for entry in entries if isinstance(entry, dict)}


def config_path(name: str) -> Path:
    """Absolute path of a packaged configuration file.

    Raises:
        UsageError: there is no file of that name.
    """
    if name not in _FILES:
        raise UsageError(f"no packaged file is called {name!r}; known: {', '.join(sorted(_FILES))}")
    return Path(str(files(__name__))) / _FILES[name]
