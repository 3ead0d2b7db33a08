"""How the next token is drawn, as OpenAI-compatible endpoints are told."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import EndpointError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Options of sampling. What is None is not sent, and the endpoint's own default holds.

    Tokens of a turn are bounded by the method (`max_turn_tokens`).

    Raises:
        UsageError: a value outside its range.
    """

    temperature: float = 1.0
    top_p: float | None = None
    """Only the likeliest tokens that together have this probability, above 0 and at most 1."""

    def __post_init__(self) -> None:
        require(self, "temperature", self.temperature >= 0, "at least 0")
        require(self, "top_p", self.top_p is None or 0 < self.top_p <= 1, "above 0 and at most 1, or None")

    def sampling(self) -> dict[str, Any]:
        """The options by name, also those that are None."""
        return {field.name: getattr(self, field.name) for field in fields(Sampling)}

    def sampling_fields(self) -> dict[str, Any]:
        """Those that are sent with a request."""
        return {name: value for name, value in self.sampling().items() if value is not None}

    def refused_field(self, error: EndpointError) -> str | None:
        """The option that a refused request was refused for; None where the refusal names none that was sent."""
        return next((name for name in self.sampling_fields() if name in str(error)), None)
