"""The options of a judge. Import-light: agent loops read them without ever asking a judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verl_video_tools.core.config import require
from verl_video_tools.services.endpoint.config import EndpointConfig


@dataclass(frozen=True, kw_only=True)
class JudgeConfig(EndpointConfig):
    """Where the judge is, and how it is asked.

    Raises:
        UsageError: a value outside its range.
    """

    base_url: str | tuple[str, ...] | None = None
    """Address of an OpenAI-compatible endpoint, such as http://host:8000/v1, or a list of several that serve the same
    model. None: verl's own reward-model server."""
    api_key_env: str = "VVT_JUDGE_API_KEY"
    """Name of the environment variable that holds the key, never the key itself; unset means that none is needed."""
    concurrency: int = 32
    """Requests in flight at most. In training this is for the whole run, split over verl's reward workers."""
    deadline_seconds: float = 60.0
    """Time for one judgement with all its attempts, from the moment that it is its turn. A judge that is busy, failing
    or not reached is asked again until then."""
    profile: Literal["graded", "longvt", "videosiah"] = "graded"
    """Which grades it gives, and what it is told of them: three labels as ours or as LongVT's reward has them, or right
    and wrong alone, as on VideoSIAH-Eval (`judge.profiles`)."""
    temperature: float = 0.0
    """Of its sampling. LongVT's reward asks at 0.3."""
    max_tokens: int | None = 1024
    """Tokens of one reply at most: enough to think before the verdict, and a bound on a model that rambles on. None:
    the server's own limit."""
    judge_class: str = "llm"
    """`llm`, which is `LLMJudge`, or the Python path `module:Class` of a subclass of it (with a `cache_dir` of its
    own, since verdicts are kept by model and instructions)."""
    cache_dir: str | None = None
    """Folder that keeps verdicts from run to run; processes may share it. None: nothing is kept."""
    prompt_file: str | None = None
    """Path of instructions that replace the profile's packaged ones."""
    on_failure: Literal["flag", "stop"] = "flag"
    """What a judgement that failed for good does in training. `flag`: the rollout neither trains nor counts. `stop`:
    the run ends with the reason."""
    probe_interval_seconds: float = 30.0
    """Pause between two looks at a judge that counts as down, to see whether it is back."""
    max_steps_without_verdict: int = 3
    """Training steps in a row that may ask the judge and get no verdict at all; after so many the run ends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "temperature", self.temperature >= 0, "at least 0")
        require(self, "max_tokens", self.max_tokens is None or self.max_tokens >= 1, "at least 1, or None")
        require(self, "probe_interval_seconds", self.probe_interval_seconds > 0, "above 0")
        require(self, "max_steps_without_verdict", self.max_steps_without_verdict >= 1, "at least 1")
