"""The options of a run. What its folder holds was made with them, and with the models that were asked, so neither may
change between two runs into it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import whole_file


@dataclass(frozen=True, kw_only=True)
class HaystackConfig:
    """How questions are made. "Code" is the published pipeline of LongVT.

    Raises:
        UsageError: a value outside its range.
    """

    min_video_seconds: float = 512.0
    """Shorter videos are left out: LongVT's initial frames show them completely."""
    scan_fps: float = 4.0
    """Frames per second that are compared to find cuts."""
    cut_threshold: float = 27.0
    """Difference of two frames that makes a cut; scenedetect's default."""
    min_part_seconds: float = 10.0
    """Shorter scenes are joined with their neighbours (paper 3.1)."""
    max_part_seconds: float = 60.0
    """Longer scenes are divided."""
    caption_fps: float = 1.0
    """Frames per second of a part that is described (code: 4)."""
    check_fps: float = 2.0
    """Frames per second of the evidence that a question is checked against (code)."""
    max_frames: int = 32
    """Frames of one request."""
    frame_pixels: int = 200_704
    """Maximum area of a frame in pixels."""
    captions_per_request: int = 15
    """Consecutive parts in one request for questions (code)."""
    questions_per_request: int = 3
    """Maximum questions per request."""
    max_caption_tokens: int = 300
    """Tokens of a description; raise it for models that reason."""
    max_question_tokens: int = 150
    """Tokens per question of a reply."""
    max_verdict_tokens: int = 200
    """Tokens of a check's reply."""
    max_evidence_seconds: float = 300.0
    """Questions with a longer segment are dropped (code)."""
    max_evidence_share: float = 0.2
    """Questions with a larger share of the video are dropped, so that a crop of the whole video stays below the paper's
    IoU of 0.3."""
    min_score: float = 0.85
    """Minimum score of the visual check (code)."""

    def __post_init__(self) -> None:
        for name in ("scan_fps", "cut_threshold", "caption_fps", "check_fps", "min_part_seconds"):
            require(self, name, getattr(self, name) > 0, "above 0")
        least = 2 * self.min_part_seconds  # halves of a divided part must not be too short again
        require(self, "max_part_seconds", self.max_part_seconds >= least, f"at least {least:g}")
        for name in ("max_frames", "captions_per_request", "questions_per_request", "frame_pixels"):
            require(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("max_caption_tokens", "max_question_tokens", "max_verdict_tokens"):
            require(self, name, getattr(self, name) >= 1, "at least 1")
        require(self, "min_video_seconds", self.min_video_seconds >= 0, "at least 0")
        require(self, "max_evidence_share", 0 < self.max_evidence_share <= 1, "above 0, at most 1")
        require(self, "min_score", 0 <= self.min_score <= 1, "0 to 1")

    def evidence_fault(self, seconds: float, video_seconds: float) -> str | None:
        """Why a question may not be about a segment of this length, in a video of that one; None if it may."""
        if seconds > self.max_evidence_seconds:
            return "its segment is long"
        if seconds > self.max_evidence_share * video_seconds:
            return "its segment is a large part of its video"
        return None


def claim(folder: Path, facts: Mapping[str, Any]) -> None:
    """Make the folder, or continue in it: write down what its content is made with.

    Args:
        facts: options, prompts and names of models by name, JSON-able; others than these may be written down already.

    Raises:
        UsageError: it cannot be written, or was made with others.
    """
    path = folder / "config.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        theirs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        others = {name: theirs[name] for name, value in facts.items() if theirs.get(name, value) != value}
        if facts.keys() - theirs.keys() and not others:
            with whole_file(path) as partial:
                partial.write_text(json.dumps({**theirs, **facts}, indent=1) + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot use {folder}: {error}") from error
    changed = [f"{name}={value!r}, not {facts[name]!r}" for name, value in others.items()]
    if changed:
        raise UsageError(f"{folder} was made with {'; '.join(changed)}; give the same or another folder")
