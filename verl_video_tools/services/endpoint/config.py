"""The options of an endpoint. Import-light."""

from __future__ import annotations

from dataclasses import dataclass

from verl_video_tools.core.config import require


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """Where a model is served, and how it is asked.

    Raises:
        UsageError: a value outside its range.
    """

    base_url: str | None = None
    """Address of an OpenAI-compatible endpoint, such as http://host:8000/v1."""
    model: str | None = None
    """Name of a served model. None: the first that the endpoint lists."""
    api_key_env: str = "VVT_API_KEY"
    """Name of the environment variable that holds the key, never the key itself; unset means that none is needed."""
    concurrency: int = 32
    """Requests in flight at most."""
    deadline_seconds: float = 600.0
    """Time for one reply with all its attempts, from the moment that it is its turn. An endpoint that is busy, failing
    or not reached is asked again until then."""
    max_attempts: int = 4
    """Replies that cannot be used, per reply wanted, before it counts as failed."""

    def __post_init__(self) -> None:
        is_url = self.base_url is None or self.base_url.startswith(("http://", "https://"))
        require(self, "base_url", is_url, "an address that starts with http:// or https://")
        for name in ("concurrency", "max_attempts"):
            require(self, name, getattr(self, name) >= 1, "at least 1")
        require(self, "deadline_seconds", self.deadline_seconds > 0, "above 0")
