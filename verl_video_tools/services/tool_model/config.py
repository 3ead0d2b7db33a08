"""The options of the model that tools ask. Import-light."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_video_tools.core.config import checked_fields, require
from verl_video_tools.core.model_calls import ModelLimits
from verl_video_tools.services.endpoint.config import EndpointConfig


@dataclass(frozen=True, kw_only=True)
class ToolModelConfig(EndpointConfig):
    """Where the model is, how it is asked, and how much of it one rollout may ask.

    Raises:
        UsageError: a value outside its range.
    """

    api_key_env: str = "VVT_TOOL_MODEL_API_KEY"
    """Environment variable that holds the key; unset: no key."""
    concurrency: int = 32
    """Requests in flight. In training this is for the whole run, split over verl's agent loop workers."""
    deadline_seconds: float = 60.0
    """Seconds for one reply with all attempts, queueing not counted. The tool's own deadline (`tool_deadline_seconds`)
    holds beside it."""
    temperature: float = 0.0
    """Sampling temperature."""
    max_tokens: int = 512
    """Tokens per reply, reasoning included; a longer one is cut and ends with `[...]`."""
    calls_per_rollout: int = 8
    """Questions per rollout; further ones are refused (`model_budget`)."""
    tokens_per_rollout: int | None = None
    """Tokens of all questions and replies of a rollout, if the endpoint counts them. None: no limit."""
    jpeg_quality: int | None = None
    """JPEG quality of the frames sent, 1 to 95. None: PNG."""
    prompt_file: str | None = None
    """Path of instructions that replace the system message."""
    probe_interval_seconds: float = 30.0
    """Seconds between probes of an endpoint that counts as down."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "temperature", self.temperature >= 0, "at least 0")
        for name in ("max_tokens", "calls_per_rollout"):
            require(self, name, getattr(self, name) >= 1, "at least 1")
        tokens = self.tokens_per_rollout
        require(self, "tokens_per_rollout", tokens is None or tokens >= 1, "at least 1, or None")
        require(self, "jpeg_quality", self.jpeg_quality is None or 1 <= self.jpeg_quality <= 95, "1 to 95, or None")
        require(self, "probe_interval_seconds", self.probe_interval_seconds > 0, "above 0")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> ToolModelConfig:
        """The options as a configuration file or a command line gives them.

        Raises:
            UsageError: an unknown field, a wrong value, or no address.
        """
        config = cls(**checked_fields(cls, fields))
        require(config, "base_url", config.base_url is not None, "the address of the tools' model")
        return config

    @property
    def limits(self) -> ModelLimits:
        """What one rollout may ask."""
        return ModelLimits(self.calls_per_rollout, self.tokens_per_rollout)
