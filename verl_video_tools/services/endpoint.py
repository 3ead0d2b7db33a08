"""`EndpointClient`: asks a model behind an OpenAI-compatible endpoint, many at a time.

The package `openai` repeats a request that an endpoint refuses for the moment, with its pauses and the ones that the
endpoint asks for, and a deadline ends that. What is left for this module: replies that cannot be used, several
addresses of one model, and a model that is down.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from verl_video_tools.core.errors import EndpointError, UsageError, VideoToolsError
from verl_video_tools.services.attempts import ATTEMPTS, MAX_REPLIES, NO_RETRY, Attempts, BrokenReply, CircuitBreaker
from verl_video_tools.services.config import EndpointConfig

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

REACH_SECONDS = 10.0
"""For how long an endpoint is tried that does not answer at the start, where an address may be mistyped."""

REST_SECONDS = 30.0
"""For how long an address that gave no reply is passed over where there is another."""

BROKEN_PAUSE_SECONDS = 1.0
"""After a reply that is none, such as the page of a proxy whose server starts, and between attempts to reach one."""

_UNTIL_DEADLINE = 10_000
"""Retries of the `openai` package."""
_GET_SECONDS = 30.0
"""For a reply about the server itself. One that is busy may be slow to tell."""
_CONNECT_SECONDS = 10.0
"""For a connection to be made: a machine that is switched off does not even refuse one."""
_LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
_BUSY = frozenset({408, 409, 429})
"""HTTP codes that the `openai` package retries, beside 5xx."""
_OF_THE_REQUEST = frozenset({400, 413, 422})
"""HTTP codes of a request that is refused for what it holds, such as too many images or too long a text."""
_UNFINISHED = frozenset({"abort", "aborted", "error"})
"""Reasons with which servers send what there is of a reply that they have not finished, as vLLM when it is stopped."""


class Unavailable(EndpointError):
    """The endpoint gave no reply: busy, failing, or not reached. That says nothing about the request."""


class Refused(EndpointError):
    """The endpoint gave no usable reply to this request: HTTP 400, 413 or 422, replies that `read` refused, or HTTP 500
    several times while it answered others.

    Where it answers others (`has_answered`), the request is the cause.
    """


class UnusableReply(EndpointError):
    """Why a reply cannot be used.

    Args:
        reminder: a message before the model replies again, since the same request gets the same reply.
    """

    def __init__(self, reason: str, reminder: str | None = None) -> None:
        super().__init__(reason)
        self.reminder = reminder


@dataclass(frozen=True, slots=True)
class Completion:
    """What a chat model replied."""

    text: str
    """Empty where the model sent nothing but reasoning in a field of its own."""
    finish_reason: str | None = None
    """`length` where the reply was cut at its token limit."""
    stop_reason: str | None = None
    """The stop string that ended the reply; only vLLM and SGLang say so."""
    reports_stop: bool = False
    """The endpoint would have named a stop string, had one ended the reply."""
    num_tokens: int = 0
    """Tokens generated, 0 where the endpoint does not count them."""
    reasoning: str | None = None
    """Native reasoning in a field of its own, as servers with a reasoning parser send it; never empty."""
    num_prompt_tokens: int = 0
    """Tokens of the request, images included; 0 where the endpoint does not count them."""
    num_discarded_tokens: int = 0
    """Tokens of an earlier reply to the same request, which could not be used."""

    @property
    def excerpt(self) -> str:
        """The text's beginning, for messages; of an empty text also the cause, where it is known."""
        if self.text.strip() or self.reasoning is None:
            return f"{self.text!r:.200}"
        return (
            "'', since the server's reasoning parser took the whole reply for reasoning; allow more tokens, or start "
            "the server without that parser"
        )


def read_completion(reply: Any) -> Completion:
    """The first choice of a chat completion.

    Raises:
        BrokenReply: the reply is none, its content is no text, the server took calls out of it, or did not finish it.
    """
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        # vLLM says `reasoning`, older releases and SGLang `reasoning_content`.
        fields = (_text(message.get(name)) for name in ("reasoning_content", "reasoning"))
        reasoning = next((text for text in fields if text is not None and text.strip()), None)
        text = message["content"]
        if text is None and reasoning is not None:  # cut before a word was said
            text = ""
        usage = reply.get("usage") or {}
        num_tokens, num_prompt_tokens = (_count(usage.get(f"{kind}_tokens")) for kind in ("completion", "prompt"))
        # vLLM says `stop_reason`, SGLang `matched_stop`; null or a number is a token that ends a turn.
        stop_reason = _text(choice.get("stop_reason", choice.get("matched_stop")))
        reports_stop = not {"stop_reason", "matched_stop"}.isdisjoint(choice)
        finish_reason = _text(choice.get("finish_reason"))
        has_parsed_calls = bool(message.get("tool_calls"))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        text, has_parsed_calls = None, False
    if has_parsed_calls:  # grammars read calls in the text, which lacks them now
        raise BrokenReply(
            "the server took calls out of the reply's text (tool_calls); start it without a parser of tool calls "
            "(vLLM: without --enable-auto-tool-choice)"
        )
    if not isinstance(text, str):
        raise BrokenReply(f"the reply is no chat completion: {reply!r:.200}")
    if finish_reason in _UNFINISHED:
        raise BrokenReply(f"the endpoint did not finish its reply (finish_reason {finish_reason!r})")
    return Completion(text, finish_reason, stop_reason, reports_stop, num_tokens, reasoning, num_prompt_tokens)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int:
    """Python's JSON has an infinity, which is no whole number."""
    return value if isinstance(value, int) and value > 0 else 0


class _Address:
    """One address, within one event loop."""

    def __init__(self, base_url: str, client: AsyncOpenAI) -> None:
        self.base_url = base_url
        self.client = client
        self.num_routes = 0
        self.rests_until = float("-inf")

    async def get(self, path: str, max_retries: int) -> Any:
        options: Any = {"max_retries": max_retries, "timeout": _GET_SECONDS}
        return await _requested(self.client.get(path, cast_to=object, options=options))

    async def chat_completion(self, body: Mapping[str, Any], max_retries: int) -> Completion:
        # As plain JSON: the package's types cost a good part of a request's CPU time, and check nothing.
        options: Any = {"max_retries": max_retries}
        request = self.client.post("/chat/completions", cast_to=object, body=dict(body), options=options)
        return read_completion(await _requested(request))


class Route:
    """The address of requests that belong together, as the turns of a dialogue do: it may have kept what it computed
    for the turns before. Used as a context."""

    def __init__(self, addresses: Sequence[_Address]) -> None:
        self.addresses = addresses

    def __enter__(self) -> Self:
        self._take_best()
        return self

    def __exit__(self, *error: object) -> None:
        self.address.num_routes -= 1

    def leave(self) -> None:
        """Go on elsewhere, where there is another address, after a request that got no reply."""
        self.address.num_routes -= 1
        self.address.rests_until = time.monotonic() + REST_SECONDS
        self._take_best()

    def _take_best(self) -> None:
        now = time.monotonic()
        self.address = min(self.addresses, key=lambda one: (max(0.0, one.rests_until - now), one.num_routes))
        self.address.num_routes += 1


class _Session:
    """What belongs to one event loop."""

    def __init__(self, config: EndpointConfig, name: str | None) -> None:
        self.addresses = [_Address(url, _openai_client(url, config)) for url in config.base_urls]
        self.slots = asyncio.Semaphore(config.concurrency)
        self.breaker = CircuitBreaker(name or "endpoint", config.deadline_seconds if name else float("inf"))
        self.first_model: str | None = None
        self.has_answered = False


class EndpointClient:
    """Requests to one endpoint, or to several that serve the same model.

    May be used from several event loops, one after the other or in different threads: connections, the bound on
    requests in flight and whether the model counts as down belong to the running loop. Close it in each (`async with`,
    or `aclose`).

    Args:
        config: `base_url` must be set.
        name: of a model whose requests fail at once while it is down (`CircuitBreaker`); None: each is tried.

    Raises:
        UsageError: no `base_url`, or the package `openai` is not there.
    """

    def __init__(self, config: EndpointConfig, name: str | None = None) -> None:
        if not config.base_urls:
            raise UsageError("an endpoint needs a base_url, such as http://host:8000/v1")
        try:
            import openai  # noqa: F401
        except ModuleNotFoundError as error:
            raise UsageError(f"an endpoint needs {error.name}: uv pip install '.[judge]' in the checkout") from error
        self._endpoint_config = config
        self._name = name
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Session] = WeakKeyDictionary()

    @property
    def has_answered(self) -> bool:
        """Whether a reply could be used before: the endpoint works, and so do our requests."""
        return self._session().has_answered

    def route(self) -> Route:
        """For requests that belong together, which are then sent to one address. Used as a context."""
        return Route(self._session().addresses)

    async def model(self) -> str:
        """The configured model, or the first that is served.

        Raises:
            EndpointError: the endpoint cannot be reached, or lists no model.
        """
        session, config = self._session(), self._endpoint_config
        if config.model is None and session.first_model is None:
            async with self._exchange() as route:
                session.first_model = (await _listed_models(route))[0]
        return str(config.model or session.first_model)

    async def complete(
        self,
        body: Mapping[str, Any],
        read: Callable[[Completion], Result],
        *,
        route: Route | None = None,
        attempts: Attempts | None = None,
    ) -> Result:
        """What `read` makes of the first reply that it does not refuse with `UnusableReply`.

        Args:
            body: of the request, without the model's name.
            route: entered by the caller; None: one of its own.
            attempts: counts what is sent.

        Raises:
            Unavailable: the endpoint was busy, failing or not reached until the deadline.
            Refused: no reply could be used, or the request is refused for what it holds.
            EndpointError: any other failure.
        """
        body = {**body, "model": await self.model()}
        session = self._session()
        number = 0
        async with self._exchange(route, attempts) as taken:
            while True:
                number += 1
                try:
                    completion = await _sent(taken, lambda address, retries: address.chat_completion(body, retries))
                    session.breaker.replied()
                    result = read(completion)
                    session.has_answered = True
                    return result
                except (BrokenReply, UnusableReply) as error:
                    if number == MAX_REPLIES:
                        kind = Refused if isinstance(error, UnusableReply) else EndpointError
                        raise kind(
                            f"no usable reply from {self._addresses(taken)} in {MAX_REPLIES} attempts; "
                            f"the last failed with: {error}"
                        ) from error
                    if isinstance(error, BrokenReply):
                        taken.leave()
                        await asyncio.sleep(BROKEN_PAUSE_SECONDS)
                    elif error.reminder is not None:
                        reply = {"role": "assistant", "content": completion.text}
                        body["messages"] = [*body["messages"], reply, {"role": "user", "content": error.reminder}]

    async def served_models(self) -> list[str]:
        """Names of the models that the endpoint lists.

        Raises:
            EndpointError: it cannot be reached, or lists none.
        """
        async with self._exchange(patience_seconds=REACH_SECONDS) as route:
            impatient_at = time.monotonic() + REACH_SECONDS
            while True:
                try:
                    return await _listed_models(route, max_retries=0)
                except Unavailable:
                    if time.monotonic() > impatient_at:
                        raise
                await asyncio.sleep(BROKEN_PAUSE_SECONDS)

    async def check_reachable(self) -> None:
        """Ask for a reply of any kind; of several addresses, until one gives it.

        Raises:
            EndpointError: nothing answers.
        """
        try:
            await self.served_models()
        except Unavailable:
            raise
        except EndpointError:
            return  # it answers, if not to this

    async def server_version(self) -> str | None:
        """The version that vLLM reports at `/version`, beside `/v1`; None for other servers."""
        with suppress(EndpointError):
            async with self._exchange() as route:
                url = f"{route.address.base_url.rstrip('/').removesuffix('/v1')}/version"
                reply = await route.address.get(url, max_retries=0)
                return _text(reply.get("version")) if isinstance(reply, dict) else None
        return None

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        for address in [] if session is None else session.addresses:
            await address.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    # ------------------------------------------------------------------------------------------------------- internals

    def _session(self) -> _Session:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            self._sessions[loop] = _Session(self._endpoint_config, self._name)
        return self._sessions[loop]

    @asynccontextmanager
    async def _exchange(
        self, route: Route | None = None, attempts: Attempts | None = None, patience_seconds: float = math.inf
    ) -> AsyncIterator[Route]:
        """Wait for one of the exchanges that may be under way at once; what is done within has to meet the deadline,
        at each address. Whatever goes wrong within is an EndpointError.

        Args:
            patience_seconds: for how long an endpoint that is not available is asked again, for the message.
        """
        session, seconds = self._session(), self._endpoint_config.deadline_seconds
        finds_out = session.breaker.check()
        async with session.slots:
            if not finds_out:
                session.breaker.check()  # others may have found it down while this one waited for its turn
            attempts = attempts or Attempts()
            attempts.began_at, attempts.breaker = time.monotonic(), session.breaker
            ATTEMPTS.set(attempts)
            with nullcontext(route) if route is not None else self.route() as taken:
                try:
                    async with asyncio.timeout(seconds * len(taken.addresses)):
                        yield taken
                except (TimeoutError, Unavailable) as error:
                    why = f"the last attempt failed with: {attempts.last_failure}"
                    late = Unavailable(
                        f"no usable reply from {self._addresses(taken)} within {min(seconds, patience_seconds):g} s; "
                        f"{why if attempts.last_failure else 'it did not reply'}"
                    )
                    taken.leave()
                    session.breaker.failed(late)
                    raise late from error
                except VideoToolsError:
                    session.breaker.replied()  # it is there, if it does not answer this
                    raise
                except Exception as error:
                    logger.exception("a request to a model failed in an unforeseen way")
                    raise EndpointError(f"{type(error).__name__}: {error}") from error

    def _addresses(self, route: Route) -> str:
        return ", ".join(address.base_url for address in route.addresses)


async def _sent(route: Route, send: Callable[[_Address, int], Any], max_retries: int = _UNTIL_DEADLINE) -> Any:
    """A reply of an address. Where there are several, the others are tried before any is waited for."""
    for _ in route.addresses[1:]:
        try:
            return await send(route.address, 0)
        except Unavailable as error:
            left = route.address
            route.leave()
            logger.warning("%s gave no reply, %s is asked: %s", left.base_url, route.address.base_url, error)
    return await send(route.address, max_retries)


async def _listed_models(route: Route, max_retries: int = _UNTIL_DEADLINE) -> list[str]:
    # As plain JSON: the package's types take whatever comes for a list of models, and break on it later.
    page = await _sent(route, lambda address, retries: address.get("/models", retries), max_retries)
    models = page.get("data") if isinstance(page, dict) else None
    listed = [model.get("id") for model in models if isinstance(model, dict)] if isinstance(models, list) else []
    names = [name for name in listed if isinstance(name, str)]
    if not names:
        raise EndpointError(f"{route.address.base_url}: GET /models lists no model: {page!r:.200}")
    return names


def _openai_client(base_url: str, config: EndpointConfig) -> AsyncOpenAI:
    """The client of one address."""
    from openai import AsyncOpenAI, Timeout

    from verl_video_tools.services.bounded_http import BoundedHttpClient

    # Servers of this machine are not reached through its proxy.
    is_here = urlsplit(base_url).hostname in _LOCAL_HOSTS
    seconds = config.deadline_seconds
    return AsyncOpenAI(
        http_client=BoundedHttpClient(trust_env=not is_here),
        base_url=base_url,
        # Given always: the package would else send the key of another service to this endpoint.
        api_key=os.environ.get(config.API_KEY_ENV) or "EMPTY",
        timeout=Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
    )


async def _requested(request: Any) -> Any:
    """A reply of the endpoint, or the reason why there is none, as our own error."""
    import openai

    try:
        return await request
    except openai.APIStatusError as error:
        status, reason = error.status_code, f"HTTP {error.status_code}: {' '.join(error.message.split()):.200}"
        fails_on_this = NO_RETRY in error.response.headers.items()
        if status in _BUSY or (status >= 500 and not fails_on_this):
            raise Unavailable(reason) from error
        kind = Refused if status in _OF_THE_REQUEST or fails_on_this else EndpointError
        raise kind(f"the endpoint refused the request, {reason}") from error
    except openai.APIConnectionError as error:
        raise Unavailable(f"{type(error.__cause__).__name__}: {error.__cause__}") from error
