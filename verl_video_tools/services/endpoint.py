"""`EndpointClient`: asks a model behind an OpenAI-compatible endpoint, many at a time, and says so when it could not.

Retries are our own and not those of the `openai` package, because an unreadable reply must be tried again, too, and
because a deadline ends them, not their number.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from verl_video_tools.core.errors import EndpointError, UsageError
from verl_video_tools.services.config import EndpointConfig
from verl_video_tools.services.transport import (
    AttemptFailed,
    BrokenReply,
    InternalError,
    Place,
    Route,
    Unavailable,
    retry_after_seconds,
    wait_seconds,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Result = TypeVar("Result")

MAX_ATTEMPTS = 4
"""Unusable replies per wanted reply before it fails: a model that is asked the same seldom does better later."""

REACH_SECONDS = 10.0
"""For how long an endpoint is tried again that does not answer at the start, where an address may be mistyped. A
connection that stands has all of the deadline: a busy server answers late."""

_CONNECT_SECONDS = 10.0
"""For a connection to be made: a machine that is switched off does not even refuse one."""

_VERSION_SECONDS = 10.0

_OWN_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})

_RETRIED_STATUS = frozenset({408, 409, 425, 429})
"""Besides 5xx; any other 4xx would be answered the same way again."""


class EndpointClient:
    """Requests to one endpoint, or to several that serve the same model.

    Of several addresses each exchange, or each route, takes the one with the fewest, and goes on at another where it
    gives no reply (`transport.Route`).

    May be used from several event loops, one after the other or in different threads: connections and the bound on
    requests in flight belong to the running loop. Close it in each (`async with`, or `aclose`).

    Args:
        config: `base_url` must be set.

    Raises:
        UsageError: no `base_url`, or the package `openai` is not there.
    """

    def __init__(self, config: EndpointConfig) -> None:
        if not config.base_urls:
            raise UsageError("an endpoint needs a base_url, such as http://host:8000/v1")
        try:
            import openai  # noqa: F401
        except ModuleNotFoundError as error:
            raise UsageError(f"an endpoint needs {error.name}: uv pip install '.[judge]' in the checkout") from error
        self.config = config
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Session] = WeakKeyDictionary()

    def route(self) -> Route:
        """For exchanges that belong together, as the turns of a dialogue do: they are sent to one address, which may
        have kept what it computed for the turns before. Used as a context."""
        return Route(self._session().places)

    @asynccontextmanager
    async def exchange(self, route: Route | None = None) -> AsyncIterator[Exchange]:
        """Wait for one of the exchanges that may be under way at once; what is done within has to meet the deadline.

        Args:
            route: entered by the caller; None: one of its own.

        Raises:
            EndpointError: no usable reply within `MAX_ATTEMPTS` and `deadline_seconds`, or a request that is refused.
        """
        session = self._session()
        async with session.slots:
            with nullcontext(route) if route is not None else self.route() as taken:
                exchange = Exchange(self.config, session, taken)
                try:
                    async with exchange.timeout:
                        yield exchange
                except TimeoutError as error:
                    late = exchange.out_of_time()
                    taken.leave(Unavailable(str(late)))
                    raise late from error

    async def served_models(self) -> list[str]:
        """Names of the models that the endpoint lists.

        Raises:
            EndpointError: it cannot be reached, or lists none.
        """
        async with self.exchange() as exchange:
            return await exchange.retried(lambda: _list_models(exchange.route.place), REACH_SECONDS)

    async def check_reachable(self) -> None:
        """Ask for a reply of any kind; of several addresses, until one gives it.

        Raises:
            EndpointError: nothing answers.
        """
        asked = [asyncio.create_task(self._reach(place)) for place in self._session().places]
        try:
            for reply in asyncio.as_completed(asked):
                with suppress(EndpointError):
                    return await reply
            await asked[0]
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def server_version(self) -> str | None:
        """The version that the server tells at `/version`, beside `/v1`, as vLLM does; None where it does not. Of
        several addresses the first that tells it.

        Each is asked once: for a record, not for a decision.
        """
        for place in self._session().places:
            url = f"{place.base_url.rstrip('/').removesuffix('/v1')}/version"
            with suppress(EndpointError):
                request = place.client.get(url, cast_to=object, options={"timeout": _VERSION_SECONDS})
                reply = await _requested(request)
                version = reply.get("version") if isinstance(reply, dict) else None
                if isinstance(version, str):
                    return version
        return None

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        for place in [] if session is None else session.places:
            await place.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _reach(self, place: Place) -> None:
        with Route([place]) as route:
            async with self.exchange(route) as exchange:
                await exchange.retried(lambda: _any_reply(place), REACH_SECONDS)

    def _session(self) -> _Session:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            self._sessions[loop] = _Session(self.config)
        return self._sessions[loop]


class Exchange:
    """The requests that one reply may take, each tried again where that may help, until one deadline."""

    def __init__(self, config: EndpointConfig, session: _Session, route: Route) -> None:
        self.config = config
        self.session = session
        self.route = route
        self.began_at = asyncio.get_running_loop().time()
        self.ends_at = self.began_at + config.deadline_seconds
        self.timeout = asyncio.timeout_at(self.ends_at)
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
        return await self.retried(lambda: _first_model(self.session, self.route))

    async def chat_completion(self, body: Mapping[str, Any]) -> Any:
        """One attempt at a chat completion.

        Returns:
            The reply as plain JSON: the package's types cost a good part of a request's CPU time, and check nothing.

        Raises:
            AttemptFailed: worth another attempt.
            EndpointError: not worth one.
        """
        place = self.route.place
        reply = await _requested(place.client.post("/chat/completions", cast_to=object, body=dict(body)))
        self.session.replied_at = asyncio.get_running_loop().time()
        place.replied()
        return reply

    async def retried(self, attempt: Callable[[], Awaitable[Result]], patience_seconds: float | None = None) -> Result:
        """The result of the first attempt that does not raise `AttemptFailed`.

        A reply that cannot be used costs one of `MAX_ATTEMPTS`; an endpoint that is busy, failing or not reached is
        asked again until the deadline, after the pause that it asks for, and at another address, where there is one,
        at once. One that fails on this request (HTTP 500), while it replies to others, has given a reply that cannot be
        used.

        Args:
            patience_seconds: for how long an endpoint that is not available is asked again, if not until the deadline.

        Raises:
            EndpointError: the endpoint stayed unavailable, or no reply could be used in `MAX_ATTEMPTS`.
        """
        loop = asyncio.get_running_loop()
        patient_until = float("inf") if patience_seconds is None else loop.time() + patience_seconds
        gives_up_at = min(self.ends_at, patient_until)
        num_failed = num_unusable = 0
        while True:
            try:
                return await attempt()
            except AttemptFailed as error:
                self.failure = str(error)
                has_moved = self.route.leave(error)
                num_failed += 1
                fails_on_this = isinstance(error, InternalError) and self.session.replied_at > self.began_at
                num_unusable += fails_on_this or not isinstance(error, Unavailable)
                pause_seconds = 0.0 if has_moved else wait_seconds(num_failed, error)
                if isinstance(error, Unavailable) and loop.time() + pause_seconds > gives_up_at:
                    raise self.out_of_time(patience_seconds) from error
                if num_unusable >= MAX_ATTEMPTS:
                    raise EndpointError(
                        f"no usable reply from {', '.join(self.config.base_urls)} in {MAX_ATTEMPTS} attempts; "
                        f"the last failed with: {self.failure}"
                    ) from error
            await asyncio.sleep(pause_seconds)

    def out_of_time(self, seconds: float | None = None) -> EndpointError:
        """The error of an endpoint that was not available in time."""
        self.is_late = True
        what = f"the last attempt failed with: {self.failure}" if self.failure else "it did not reply"
        limit_seconds = min(seconds or self.config.deadline_seconds, self.config.deadline_seconds)
        asked = ", ".join(self.config.base_urls)
        return EndpointError(f"no usable reply from {asked} within {limit_seconds:g} s; {what}")


class _Session:
    """What belongs to one event loop."""

    def __init__(self, config: EndpointConfig) -> None:
        self.places = [Place(url, _connected(url, config)) for url in config.base_urls]
        self.slots = asyncio.Semaphore(config.concurrency)
        self.replied_at = float("-inf")
        """When a request for a completion was last answered, on the event loop's clock."""
        self.first_model: str | None = None
        self.first_model_lock = asyncio.Lock()


def _connected(base_url: str, config: EndpointConfig) -> AsyncOpenAI:
    """The client of one address."""
    from openai import AsyncOpenAI, Timeout

    from verl_video_tools.services.bounded_http import BoundedHttpClient

    # The machine's proxy must not be asked for its own servers.
    is_here = urlsplit(base_url).hostname in _OWN_NAMES
    seconds = config.deadline_seconds
    return AsyncOpenAI(
        http_client=BoundedHttpClient(trust_env=not is_here),
        base_url=base_url,
        # Given always: the package would else send the key of another service to this endpoint.
        api_key=os.environ.get(config.API_KEY_ENV) or "EMPTY",
        timeout=Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
        max_retries=0,
    )


async def _first_model(session: _Session, route: Route) -> str:
    async with session.first_model_lock:
        if session.first_model is None:
            session.first_model = (await _list_models(route.place))[0]
        return session.first_model


async def _list_models(place: Place) -> list[str]:
    # As plain JSON: the package's types take whatever comes for a list of models, and break on it later.
    page = await _requested(place.client.get("/models", cast_to=object))
    models = page.get("data") if isinstance(page, dict) else None
    told = [model.get("id") for model in models if isinstance(model, dict)] if isinstance(models, list) else []
    names = [name for name in told if isinstance(name, str)]
    if not names:
        raise BrokenReply(f"GET /models lists no model: {page!r:.200}")
    return names


async def _any_reply(place: Place) -> None:
    import openai

    try:
        await place.client.get("/models", cast_to=object)
    except openai.APIConnectionError as error:
        raise _connection_error(error) from error
    except (openai.OpenAIError, ValueError, RecursionError, AttemptFailed):
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
        raise _connection_error(error) from error
    # Of a body that claims to be JSON: ValueError where it is none, RecursionError where it is nested too deep.
    except (openai.OpenAIError, ValueError, RecursionError) as error:
        raise BrokenReply(_cause(error)) from error


def _connection_error(error: Exception) -> EndpointError:
    """The package takes what its HTTP client raises for a connection that failed, also what `bounded_http` refuses."""
    return error.__cause__ if isinstance(error.__cause__, EndpointError) else Unavailable(_cause(error))


def _cause(error: Exception) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}"
