"""Models behind OpenAI-compatible endpoints: bounded, retried requests, and rollouts with such a model as policy.

config.py   where an endpoint is, and how patiently it is asked
client.py   `EndpointClient`: one exchange at a time is a turn with a deadline, retries and a bound on turns at once
routes.py   which of several addresses a request is sent to
bounded.py  the HTTP client beneath it: replies of bounded size, no redirects
retries.py  which failures are worth another request, and when it is made
chat.py     messages and completions as they travel
breaker.py  `CircuitBreaker`: nobody waits for a model that is down
breakable.py  `BreakableClient`: what the clients with a breaker share
asking.py   a reply in a form that can be used
"""

from verl_video_tools.services.endpoint.client import EndpointClient
from verl_video_tools.services.endpoint.config import EndpointConfig
from verl_video_tools.services.endpoint.retries import AttemptFailed

__all__ = ["AttemptFailed", "EndpointClient", "EndpointConfig"]
