"""Fields of a method in the synthetic world, from files in its folder. `config/video_tools/synthetic` has the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import Method
from verl_video_tools.core.prompt_files import file_beside

PROMPT_FILE = "prompt_synthetic.txt"
FIELDS_FILE = "synthetic.txt"


def synthetic_fields(method_class: type[Method], prompts_dir: Path | None = None) -> dict[str, Any]:
    """Fields of the method's config: its short prompt, and those of `FIELDS_FILE`.

    Args:
        prompts_dir: folder of prompts that `vvt demo` has written; None: the packaged prompt.
    """
    lines = file_beside(method_class, FIELDS_FILE).read_text(encoding="utf-8").splitlines()
    given = read_assignments([line for line in lines if not line.startswith("#")])
    packaged = Path(str(file_beside(method_class, PROMPT_FILE)))
    prompt = packaged if prompts_dir is None else prompts_dir / f"{method_class.name}.txt"
    return {"prompt_file": str(prompt), **given}


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
