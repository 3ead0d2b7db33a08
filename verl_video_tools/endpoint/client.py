"""`EndpointClient`: asks a model behind an OpenAI-compatible endpoint, many at a time, and says so when it could not.

Retries are made here and not by the `openai` package, because an unreadable reply must be tried again, too.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from verl_video_tools.endpoint.config import EndpointConfig
from verl_video_tools.errors import EndpointError, UsageError

Result = TypeVar("Result")

FIRST_BACKOFF_SECONDS = 0.5
"""Wait after the first failed attempt; it doubles with each further one, times a random factor from 0.5 to 1.5."""

_VERSION_SECONDS = 10.0

_OWN_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})

_RETRIED_STATUS = frozenset({408, 409, 425, 429})
"""Besides 5xx; any other 4xx would be answered the same way again."""


class AttemptFailed(EndpointError):
    """One attempt failed in a way that another may not."""


class EndpointClient:
    """Requests to one endpoint.

    May be used from several event loops, one after the other or in different threads: connections and the bound on
    requests in flight belong to the running loop. Close it in each (`async with`, or `aclose`).

    Args:
        config: `base_url` must be set.

    Raises:
        UsageError: no `base_url`, or the package `openai` is missing.
    """

    def __init__(self, config: EndpointConfig) -> None:
        if config.base_url is None:
            raise UsageError("an endpoint needs a base_url, such as http://host:8000/v1")
        try:
            import openai  # noqa: F401
        except ModuleNotFoundError as error:
            raise UsageError("an endpoint needs openai: uv pip install '.[judge]' in the checkout") from error
        self.config = config
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Session] = WeakKeyDictionary()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Wait for one of the turns that may be taken at once; what is done within has to meet the deadline.

        Raises:
            EndpointError: no usable reply within `max_attempts` and `deadline_seconds`, or a request that is refused.
        """
        turn = Turn(self.config, self._session())
        async with turn.session.slots:
            try:
                async with asyncio.timeout(self.config.deadline_seconds):
                    yield turn
            except TimeoutError as error:
                what = f"the last attempt failed with: {turn.failure}" if turn.failure else "it did not reply"
                raise EndpointError(
                    f"no usable reply from {self.config.base_url} within {self.config.deadline_seconds} s; {what}"
                ) from error

    async def served_models(self) -> list[str]:
        """Names of the models that the endpoint lists.

        Raises:
            EndpointError: it cannot be reached, or lists none.
        """
        async with self.turn() as turn:
            return await turn.retried(lambda: _list_models(turn.session))

    async def check_reachable(self) -> None:
        """Ask for a reply of any kind.

        Raises:
            EndpointError: nothing answers.
        """
        async with self.turn() as turn:
            await turn.retried(lambda: _any_reply(turn.session))

    async def server_version(self) -> str | None:
        """The version that the server tells at `/version`, beside `/v1`, as vLLM does; None where it does not.

        Asked once: for a record, not for a decision.
        """
        import openai

        url = f"{(self.config.base_url or '').rstrip('/').removesuffix('/v1')}/version"
        request = self._session().client.get(url, cast_to=object, options={"timeout": _VERSION_SECONDS})
        try:
            reply = await request
        except (openai.OpenAIError, ValueError):
            return None
        version = reply.get("version") if isinstance(reply, dict) else None
        return version if isinstance(version, str) else None

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _session(self) -> _Session:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            self._sessions[loop] = _Session(self.config)
        return self._sessions[loop]


class Turn:
    """What one reply may do: requests, each tried again where that may help."""

    def __init__(self, config: EndpointConfig, session: _Session) -> None:
        self.config = config
        self.session = session
        self.failure: str | None = None
        """Why the last attempt failed."""

    async def model(self) -> str:
        """The configured model, or the first that is served."""
        if self.config.model is not None:
            return self.config.model
        return await self.retried(lambda: _first_model(self.session))

    async def chat_completion(self, body: Mapping[str, Any]) -> Any:
        """One attempt at a chat completion.

        Returns:
            The reply as plain JSON: the package's types cost a good part of a request's CPU time, and check nothing.

        Raises:
            AttemptFailed: worth another attempt.
            EndpointError: not worth one.
        """
        return await _requested(self.session.client.post("/chat/completions", cast_to=object, body=dict(body)))

    async def retried(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """The result of the first attempt that does not raise `AttemptFailed`.

        Raises:
            EndpointError: there is none in `max_attempts`.
        """
        for number in range(self.config.max_attempts):
            if number:
                backoff_seconds = FIRST_BACKOFF_SECONDS * 2 ** (number - 1)
                await asyncio.sleep(backoff_seconds * random.uniform(0.5, 1.5))
            try:
                return await attempt()
            except AttemptFailed as error:
                self.failure = str(error)
        raise EndpointError(
            f"no usable reply from {self.config.base_url} in {self.config.max_attempts} attempts; "
            f"the last failed with: {self.failure}"
        )


class _Session:
    """What belongs to one event loop."""

    def __init__(self, config: EndpointConfig) -> None:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        # The machine's proxy must not be asked for its own servers.
        is_here = urlsplit(config.base_url or "").hostname in _OWN_NAMES
        self.client = AsyncOpenAI(
            http_client=DefaultAsyncHttpxClient(trust_env=False) if is_here else None,
            base_url=config.base_url,
            # Given always: the package would else send the key of another service to this endpoint.
            api_key=os.environ.get(config.api_key_env) or "EMPTY",
            timeout=config.deadline_seconds,
            max_retries=0,
        )
        self.slots = asyncio.Semaphore(config.concurrency)
        self.first_model: str | None = None
        self.first_model_lock = asyncio.Lock()


async def _first_model(session: _Session) -> str:
    async with session.first_model_lock:
        if session.first_model is None:
            session.first_model = (await _list_models(session))[0]
        return session.first_model


async def _list_models(session: _Session) -> list[str]:
    page = await _requested(session.client.models.list())
    names = [model.id for model in getattr(page, "data", None) or []]
    if not names or not all(isinstance(name, str) for name in names):
        raise AttemptFailed(f"GET /models lists no model: {page!r:.200}")
    return names


async def _any_reply(session: _Session) -> None:
    import openai

    try:
        await session.client.models.list()
    except openai.APIConnectionError as error:
        cause = error.__cause__ or error
        raise AttemptFailed(f"{type(cause).__name__}: {cause}") from error
    except (openai.OpenAIError, ValueError):
        return  # it answers, if not to this


async def _requested(request: Awaitable[Any]) -> Any:
    """A reply of the endpoint, or the reason why there is none, as our own error.

    Raises:
        AttemptFailed: worth another attempt.
        EndpointError: not worth one.
    """
    import openai

    try:
        return await request
    except openai.APIStatusError as error:
        reason = f"HTTP {error.status_code}: {error.message:.200}"
        if error.status_code in _RETRIED_STATUS or error.status_code >= 500:
            raise AttemptFailed(reason) from error
        raise EndpointError(f"the endpoint refused the request, {reason}") from error
    # ValueError: a body that claims to be JSON and is not.
    except (openai.OpenAIError, ValueError) as error:
        cause = error.__cause__ or error
        raise AttemptFailed(f"{type(cause).__name__}: {cause}") from error
