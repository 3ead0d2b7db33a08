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
    """Environment variable that holds the key, set for the reward workers; unset: no key."""
    concurrency: int = 32
    """Requests in flight. In training this is for the whole run, split over verl's `reward.num_workers`."""
    deadline_seconds: float = 60.0
    """Seconds for one judgement with all attempts, queueing not counted."""
    profile: Literal["graded", "longvt", "videosiah"] = "graded"
    """Which labels it gives (`judge.profiles`)."""
    temperature: float = 0.0
    """Sampling temperature. LongVT's reward uses 0.3."""
    max_tokens: int | None = 1024
    """Tokens per reply, thoughts included. None: the server's limit."""
    judge_class: str = "llm"
    """`llm`, or the Python path `module:Class` of a subclass of `LLMJudge`, importable on every node, with a
    `cache_dir` of its own."""
    cache_dir: str | None = None
    """Folder that keeps verdicts; processes and machines may share it. The key is question, truth, answer,
    instructions, model and temperature."""
    prompt_file: str | None = None
    """Path of instructions that replace the profile's."""
    on_failure: Literal["flag", "stop"] = "flag"
    """When a judgement fails in training: `flag` excludes the rollout, `stop` ends the run."""
    probe_interval_seconds: float = 30.0
    """Seconds between probes of a judge that counts as down."""
    max_steps_without_verdict: int = 3
    """Consecutive training steps that ask the judge and get no verdict; then the run ends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "temperature", self.temperature >= 0, "at least 0")
        require(self, "max_tokens", self.max_tokens is None or self.max_tokens >= 1, "at least 1, or None")
        require(self, "probe_interval_seconds", self.probe_interval_seconds > 0, "above 0")
        require(self, "max_steps_without_verdict", self.max_steps_without_verdict >= 1, "at least 1")
