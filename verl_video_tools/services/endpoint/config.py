"""The options of an endpoint. Import-light."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from verl_video_tools.core.config import require


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """Where a model is served, and how it is asked.

    Raises:
        UsageError: a value outside its range.
    """

    base_url: str | tuple[str, ...] | None = None
    """Address of an OpenAI-compatible endpoint, such as http://host:8000/v1, or a list of several that serve the same
    model."""
    model: str | None = None
    """Name of the served model. None: the first that the endpoint lists."""
    api_key_env: str = "VVT_API_KEY"
    """Environment variable that holds the key; unset: no key."""
    concurrency: int = 32
    """Requests in flight over all addresses."""
    requests_per_second: float | None = None
    """Rate limit over all addresses and workers. None: no limit."""
    deadline_seconds: float = 600.0
    """Seconds for one reply with all attempts, queueing not counted."""
    max_attempts: int = 4
    """Unusable replies per wanted reply before it fails."""

    def __post_init__(self) -> None:
        are_urls = all(url.startswith(("http://", "https://")) for url in self.base_urls)
        require(self, "base_url", are_urls, "an address that starts with http:// or https://")
        require(self, "base_url", len(set(self.base_urls)) == len(self.base_urls), "addresses that differ")
        for name in ("concurrency", "max_attempts"):
            require(self, name, getattr(self, name) >= 1, "at least 1")
        require(self, "deadline_seconds", self.deadline_seconds > 0, "above 0")
        rate = self.requests_per_second
        require(self, "requests_per_second", rate is None or rate > 0, "above 0, or None")

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The addresses, none where no one is given."""
        if self.base_url is None:
            return ()
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url

    def share(self, num_workers: int) -> Self:
        """What each of so many workers may ask, who do not know of each other."""
        rate = self.requests_per_second
        return replace(
            self,
            concurrency=math.ceil(self.concurrency / num_workers),
            requests_per_second=None if rate is None else rate / num_workers,
        )
