"""The options of a judge. Import-light: agent loops read them without ever asking a judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verl_video_tools.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """Where the judge is, and how it is asked.

    Raises:
        UsageError: a value outside its range.
    """

    base_url: str | None = None
    """Address of an OpenAI-compatible endpoint, such as http://host:8000/v1. None: verl's own reward-model server."""
    model: str | None = None
    """Name of a served model. None: the first that the endpoint lists."""
    api_key_env: str = "VVT_JUDGE_API_KEY"
    """Name of the environment variable that holds the key, never the key itself; unset means that none is needed."""
    concurrency: int = 32
    """Requests in flight at most. In training this is for the whole run, split over verl's reward workers."""
    deadline_seconds: float = 60.0
    """Time for one judgement with all its attempts, from the moment that it is its turn."""
    max_attempts: int = 4
    """Requests per judgement at most; an unreadable reply counts as a failed attempt."""
    cache_dir: str | None = None
    """Folder that keeps verdicts from run to run; processes may share it. None: nothing is kept."""
    prompt_file: str | None = None
    """Path of instructions that replace the packaged ones."""
    on_failure: Literal["flag", "stop"] = "flag"
    """What a judgement that failed for good does in training. `flag`: the rollout neither trains nor counts. `stop`:
    the run ends with the reason."""

    def __post_init__(self) -> None:
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise UsageError(f"JudgeConfig.base_url must start with http:// or https://, got {self.base_url!r}")
        for name in ("concurrency", "max_attempts"):
            if getattr(self, name) < 1:
                raise UsageError(f"JudgeConfig.{name} must be at least 1, got {getattr(self, name)}")
        if not self.deadline_seconds > 0:
            raise UsageError(f"JudgeConfig.deadline_seconds must be above 0, got {self.deadline_seconds}")
