"""`EndpointClient`: asks a model behind an OpenAI-compatible endpoint, many at a time, and says so when it could not.

Retries are tenacity's and not those of the `openai` package, because an unreadable reply must be tried again, too, and
because a deadline ends them, not their number.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from verl_video_tools.core.errors import EndpointError, UsageError
from verl_video_tools.services.endpoint.config import EndpointConfig
from verl_video_tools.services.endpoint.retries import (
    AttemptFailed,
    InternalError,
    Unavailable,
    retry_after_seconds,
    wait_seconds,
)

if TYPE_CHECKING:
    from tenacity import RetryCallState

Result = TypeVar("Result")

REACH_SECONDS = 10.0
"""For how long an endpoint is tried again that does not answer at the start, where an address may be mistyped. A
connection that stands has all of the deadline: a busy server answers late."""

_VERSION_SECONDS = 10.0

_OWN_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})

_RETRIED_STATUS = frozenset({408, 409, 425, 429})
"""Besides 5xx; any other 4xx would be answered the same way again."""


class EndpointClient:
    """Requests to one endpoint.

    May be used from several event loops, one after the other or in different threads: connections and the bound on
    requests in flight belong to the running loop. Close it in each (`async with`, or `aclose`).

    Args:
        config: `base_url` must be set.

    Raises:
        UsageError: no `base_url`, or the packages `openai` and `tenacity` are not there.
    """

    def __init__(self, config: EndpointConfig) -> None:
        if config.base_url is None:
            raise UsageError("an endpoint needs a base_url, such as http://host:8000/v1")
        try:
            import openai  # noqa: F401
            import tenacity  # noqa: F401
        except ModuleNotFoundError as error:
            raise UsageError(f"an endpoint needs {error.name}: uv pip install '.[judge]' in the checkout") from error
        self.config = config
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Session] = WeakKeyDictionary()

    @asynccontextmanager
    async def exchange(self) -> AsyncIterator[Exchange]:
        """Wait for one of the exchanges that may be under way at once; what is done within has to meet the deadline.

        Raises:
            EndpointError: no usable reply within `max_attempts` and `deadline_seconds`, or a request that is refused.
        """
        session = self._session()
        async with session.slots:
            exchange = Exchange(self.config, session)
            try:
                async with asyncio.timeout_at(exchange.ends_at):
                    yield exchange
            except TimeoutError as error:
                raise exchange.out_of_time() from error

    async def served_models(self) -> list[str]:
        """Names of the models that the endpoint lists.

        Raises:
            EndpointError: it cannot be reached, or lists none.
        """
        async with self.exchange() as exchange:
            return await exchange.retried(lambda: _list_models(exchange.session), REACH_SECONDS)

    async def check_reachable(self) -> None:
        """Ask for a reply of any kind.

        Raises:
            EndpointError: nothing answers.
        """
        async with self.exchange() as exchange:
            await exchange.retried(lambda: _any_reply(exchange.session), REACH_SECONDS)

    async def server_version(self) -> str | None:
        """The version that the server tells at `/version`, beside `/v1`, as vLLM does; None where it does not.

        Asked once: for a record, not for a decision.
        """
        import openai

        url = f"{(self.config.base_url or '').rstrip('/').removesuffix('/v1')}/version"
        request = self._session().client.get(url, cast_to=object, options={"timeout": _VERSION_SECONDS})
        try:
            reply = await request
        except (openai.OpenAIError, ValueError, RecursionError):
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


class Exchange:
    """The requests that one reply may take, each tried again where that may help, until one deadline."""

    def __init__(self, config: EndpointConfig, session: _Session) -> None:
        self.config = config
        self.session = session
        self.began_at = asyncio.get_running_loop().time()
        self.ends_at = self.began_at + config.deadline_seconds
        self.failure: str | None = None
        """Why the last attempt failed."""
        self.is_late = False
        """It has failed because the endpoint was not available in time."""

    @property
    def known_model(self) -> str | None:
        """The model, where no request is needed to know it."""
        return self.config.model or self.session.first_model

    async def model(self) -> str:
        """The configured model, or the first that is served."""
        if self.known_model is not None:
            return self.known_model
        return await self.retried(lambda: _first_model(self.session))

    async def chat_completion(self, body: Mapping[str, Any]) -> Any:
        """One attempt at a chat completion.

        Returns:
            The reply as plain JSON: the package's types cost a good part of a request's CPU time, and check nothing.

        Raises:
            AttemptFailed: worth another attempt.
            EndpointError: not worth one.
        """
        reply = await _requested(self.session.client.post("/chat/completions", cast_to=object, body=dict(body)))
        self.session.replied_at = asyncio.get_running_loop().time()
        return reply

    async def retried(self, attempt: Callable[[], Awaitable[Result]], patience_seconds: float | None = None) -> Result:
        """The result of the first attempt that does not raise `AttemptFailed`.

        A reply that cannot be used costs one of `max_attempts`; an endpoint that is busy, failing or not reached is
        asked again until the deadline, after the pause that it asks for. One that fails on this request (HTTP 500),
        while it replies to others, has given a reply that cannot be used.

        Args:
            patience_seconds: for how long an endpoint that is not available is asked again, if not until the deadline.

        Raises:
            EndpointError: the endpoint stayed unavailable, or no reply could be used in `max_attempts`.
        """
        from tenacity import AsyncRetrying, retry_if_exception_type

        loop = asyncio.get_running_loop()
        gives_up_at = self.ends_at if patience_seconds is None else min(self.ends_at, loop.time() + patience_seconds)
        num_unusable = 0

        async def noted() -> Result:
            try:
                return await attempt()
            except AttemptFailed as error:
                self.failure = str(error)
                raise

        def is_enough(state: RetryCallState) -> bool:
            nonlocal num_unusable
            error = None if state.outcome is None else state.outcome.exception()
            fails_on_this = isinstance(error, InternalError) and self.session.replied_at > self.began_at
            num_unusable += fails_on_this or not isinstance(error, Unavailable)
            self.is_late = isinstance(error, Unavailable) and loop.time() + state.upcoming_sleep > gives_up_at
            return self.is_late or num_unusable >= self.config.max_attempts

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(AttemptFailed), wait=wait_seconds, stop=is_enough, reraise=True
        )
        try:
            return await retrying(noted)
        except AttemptFailed as error:
            if self.is_late:
                raise self.out_of_time(patience_seconds) from error
            raise EndpointError(
                f"no usable reply from {self.config.base_url} in {self.config.max_attempts} attempts; "
                f"the last failed with: {self.failure}"
            ) from error

    def out_of_time(self, seconds: float | None = None) -> EndpointError:
        """The error of an endpoint that was not available in time."""
        self.is_late = True
        what = f"the last attempt failed with: {self.failure}" if self.failure else "it did not reply"
        limit_seconds = min(seconds or self.config.deadline_seconds, self.config.deadline_seconds)
        return EndpointError(f"no usable reply from {self.config.base_url} within {limit_seconds:g} s; {what}")


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
        self.replied_at = float("-inf")
        """When a request for a completion was last answered, on the event loop's clock."""
        self.first_model: str | None = None
        self.first_model_lock = asyncio.Lock()


async def _first_model(session: _Session) -> str:
    async with session.first_model_lock:
        if session.first_model is None:
            session.first_model = (await _list_models(session))[0]
        return session.first_model


async def _list_models(session: _Session) -> list[str]:
    # As plain JSON: the package's types take whatever comes for a list of models, and break on it later.
    page = await _requested(session.client.get("/models", cast_to=object))
    models = page.get("data") if isinstance(page, dict) else None
    told = [model.get("id") for model in models if isinstance(model, dict)] if isinstance(models, list) else []
    names = [name for name in told if isinstance(name, str)]
    if not names:
        raise AttemptFailed(f"GET /models lists no model: {page!r:.200}")
    return names


async def _any_reply(session: _Session) -> None:
    import openai

    try:
        await session.client.get("/models", cast_to=object)
    except openai.APIConnectionError as error:
        raise Unavailable(_cause(error)) from error
    except (openai.OpenAIError, ValueError, RecursionError):
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
            kind = InternalError if error.status_code == 500 else Unavailable
            raise kind(reason, retry_after_seconds(error.response.headers)) from error
        raise EndpointError(f"the endpoint refused the request, {reason}") from error
    except openai.APIConnectionError as error:
        raise Unavailable(_cause(error)) from error
    # Of a body that claims to be JSON: ValueError where it is none, RecursionError where it is nested too deep.
    except (openai.OpenAIError, ValueError, RecursionError) as error:
        raise AttemptFailed(_cause(error)) from error


def _cause(error: Exception) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}"
