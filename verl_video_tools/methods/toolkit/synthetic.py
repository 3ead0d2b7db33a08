"""How a method is set in the synthetic world: its config group and its short prompt."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import Method
from verl_video_tools.core.prompt_files import file_beside

PROMPT_FILE = "prompt_synthetic.txt"


def synthetic_fields(method_class: type[Method], prompts_dir: Path | None = None) -> dict[str, Any]:
    """Fields of a packaged method's config, as its group `video_tools/synthetic` sets them.

    Args:
        prompts_dir: folder of prompts that `vvt demo` has written; None: the packaged prompt.
    """
    group = files("verl_video_tools.config") / "video_tools" / "synthetic" / f"{method_class.name}.yaml"
    fields: Any = OmegaConf.to_container(OmegaConf.create(group.read_text(encoding="utf-8")))
    packaged = Path(str(file_beside(method_class, PROMPT_FILE)))
    prompt = packaged if prompts_dir is None else prompts_dir / f"{method_class.name}.txt"
    return {**fields, "prompt_file": str(prompt)}


def write_prompt(method_class: type[Method], prompts_dir: Path) -> None:
    """Write the method's short system prompt for a tiny model to ``<prompts_dir>/<name>.txt``.

    Raises:
        UsageError: the method has none.
    """
    prompt = file_beside(method_class, PROMPT_FILE)
    if not prompt.is_file():
        raise UsageError(f"{method_class.name} has no prompt for a tiny model: put one into {prompt}")
    prompts_dir.mkdir(parents=True, exist_ok=True)
    (prompts_dir / f"{method_class.name}.txt").write_bytes(prompt.read_bytes())
