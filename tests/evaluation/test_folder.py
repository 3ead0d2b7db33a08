"""An evaluation goes on where its composition is the same file's text, wherever that lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.evaluation.run import ROLLOUTS, claim_folder
from verl_video_tools.methods import get_method

TEXT = "initial_frames: {plan: uniform, num_frames: 4, min_pixels: 784, max_pixels: 2304}\nreward: [{name: accuracy}]\n"


def protocol(path: Path, text: str) -> dict[str, Any]:
    path.write_text(text)
    method = get_method("compose", file=str(path))
    return {"method": method.name, "config": {"file": str(path)}, "provenance": method.provenance()}


def test_a_composition_is_known_by_its_text(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = protocol(tmp_path / "first.yaml", TEXT)
    assert claim_folder(out, first) == first
    (out / ROLLOUTS).write_text("{}\n")
    assert claim_folder(out, protocol(tmp_path / "moved.yaml", TEXT)) == first
    edited = protocol(tmp_path / "edited.yaml", TEXT.replace("num_frames: 4", "num_frames: 5"))
    with pytest.raises(UsageError, match=r"holds another evaluation: .*provenance\.digest was"):
        claim_folder(out, edited)
