"""The folder of one evaluation: which one it holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.data.append import appended
from verl_video_tools.data.generation.protocol import settled

PROTOCOL, ROLLOUTS = "protocol.json", "rollouts.jsonl"


def entered(folder: Path, protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Take a folder for an evaluation, or continue the same one.

    Returns:
        The protocol as it stands there; of a model or a prompt that has been moved since, it names the first place.

    Raises:
        UsageError: the folder holds another evaluation, is in use by one, or cannot be written.
    """
    with appended(folder / ROLLOUTS, "step") as rollouts:  # locked: nobody else is about to write its first line
        return settled(
            folder / PROTOCOL,
            protocol,
            has_rollouts=rollouts.seek(0, os.SEEK_END) > 0,
            otherwise=f"{folder} holds another evaluation",
            advice="Give another --out",
        )
