"""How the recipes set each method in the synthetic world."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from verl_video_tools.cli.replay import read_assignments

_SCRIPT = 'DEMO_DIR=$1; source "$2"; synthetic_fields "$3"'


def synthetic_fields(method: str, demo_dir: Path, recipes: Path) -> dict[str, Any]:
    """Fields of the method's config, as `synthetic.sh` in the folder `recipes` has them.

    Args:
        demo_dir: folder of `vvt demo`, whose prompts they name.

    Raises:
        subprocess.CalledProcessError: there is no such recipe or method; the shell has said so.
    """
    command = ["bash", "-euc", _SCRIPT, "bash", str(demo_dir), str(recipes / "synthetic.sh"), method]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return read_assignments(lines)
