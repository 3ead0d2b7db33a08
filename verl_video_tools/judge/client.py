"""`LLMJudge`: asks a language model whether an answer is right, many at a time, and says so when it could not.

Retries are made here and not by the `openai` package, because an unreadable reply must be tried again, too.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from verl_video_tools.errors import JudgeError, UsageError
from verl_video_tools.judge.cache import CacheKey, VerdictCache
from verl_video_tools.judge.config import JudgeConfig
from verl_video_tools.judge.verdict import read_verdict
from verl_video_tools.types import AnswerLabel

Result = TypeVar("Result")

FIRST_BACKOFF_SECONDS = 0.5
"""Wait after the first failed attempt; it doubles with each further one, times a random factor from 0.5 to 1.5."""

_REMINDER = (
    'That reply could not be read. Reply with one JSON object and nothing else, such as {"label": "incorrect"}; the '
    "label is correct, partial or incorrect."
)
_RETRIED_STATUS = frozenset({408, 409, 425, 429})
"""Besides 5xx; any other 4xx would be answered the same way again."""


@dataclass
class JudgeCounters:
    """What became of judgements."""

    calls: int = 0
    """Judgements asked for."""
    cache_hits: int = 0
    """Those answered from disk, or by an identical one that was under way."""
    failures: int = 0
    """Those that ended without a verdict."""
    attempts: int = 0
    """Requests for a verdict that were sent."""
    failed_attempts: int = 0
    """Those of them without a usable reply."""
    latencies_ms: list[float] = field(default_factory=list)
    """Of verdicts that the endpoint gave: from its turn to the verdict, failed attempts and waits between included."""

    @property
    def latency_ms_p50(self) -> float:
        return float(np.median(self.latencies_ms)) if self.latencies_ms else 0.0


class LLMJudge:
    """A `Judge` (`verl_video_tools.types`) on an OpenAI-compatible endpoint.

    May be used from several event loops, one after the other or in different threads: connections, the bound on
    requests in flight and the sharing of identical judgements belong to the running loop. Close it in each
    (`async with`, or `aclose`).

    Args:
        config: `base_url` must be set.

    Raises:
        UsageError: no `base_url`, an unreadable prompt file, or the package `openai` is missing.
    """

    def __init__(self, config: JudgeConfig) -> None:
        if config.base_url is None:
            raise UsageError("a judge needs a base_url, such as http://host:8000/v1")
        try:
            import openai  # noqa: F401 - only whether it is there
        except ModuleNotFoundError as error:
            raise UsageError("a judge needs the package openai: pip install 'verl_video_tools[judge]'") from error
        self.config = config
        self.counters = JudgeCounters()
        self._prompt = _load_prompt(config.prompt_file)
        self._cache = None if config.cache_dir is None else VerdictCache(Path(config.cache_dir))
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Session] = WeakKeyDictionary()

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        """The verdict on one answer. Identical judgements that are under way are asked once.

        Raises:
            JudgeError: no readable reply within `max_attempts` and `deadline_seconds`, or a request that is refused.
        """
        self.counters.calls += 1
        session, key = self._session(), (question, truth, answer)
        shared = key in session.pending
        if not shared:
            session.share(key, asyncio.create_task(self._decide(*key)))
        try:
            # Shielded: one caller's cancellation must not cost the others their verdict.
            label = await asyncio.shield(session.pending[key])
        except JudgeError:
            self.counters.failures += 1
            raise
        self.counters.cache_hits += shared
        return label

    def counting_in(self, counters: JudgeCounters) -> Self:
        """The same judge, with the same connections and bounds, whose judgements count in `counters` instead."""
        twin = copy.copy(self)
        twin.counters = counters
        return twin

    async def served_models(self) -> list[str]:
        """Names of the models that the endpoint lists.

        Raises:
            JudgeError: it cannot be reached, or lists none.
        """
        session, failures = self._session(), list[str]()
        async with self._deadline(failures):
            return await self._retried(lambda: _list_models(session), failures)

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

    # ------------------------------------------------------------------------------------------------------- internals

    def _session(self) -> _Session:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            self._sessions[loop] = _Session(self.config)
        return self._sessions[loop]

    async def _decide(self, question: str, truth: str, answer: str) -> AnswerLabel:
        """One judgement: its turn, its model, the cache, then attempts until one is readable."""
        session, failures = self._session(), list[str]()
        data = json.dumps({"question": question, "reference": truth, "answer": answer}, ensure_ascii=False)
        messages = [{"role": "system", "content": self._prompt}, {"role": "user", "content": data}]
        async with session.slots, self._deadline(failures):
            started = time.perf_counter()
            model = self.config.model
            if model is None:
                model = await self._retried(lambda: _first_model(session), failures)
            key = CacheKey(question, truth, answer, self._prompt, model)
            if self._cache is not None and (kept := await asyncio.to_thread(self._cache.get, key)) is not None:
                self.counters.cache_hits += 1
                return kept
            label = await self._retried(lambda: self._ask(session, model, messages), failures)
            self.counters.latencies_ms.append((time.perf_counter() - started) * 1e3)
        if self._cache is not None:
            await asyncio.to_thread(self._cache.put, key, label)
        return label

    async def _ask(self, session: _Session, model: str, messages: list[dict[str, str]]) -> AnswerLabel:
        """One attempt. An unreadable reply is answered in `messages`: asked the same, a model says the same again."""
        self.counters.attempts += 1
        try:
            # As plain JSON: the package's types cost a good part of a request's CPU time, and check nothing.
            body = {"model": model, "messages": messages, "temperature": 0.0}
            completion = await _requested(session.client.post("/chat/completions", cast_to=object, body=body))
            reply = _reply_text(completion)
            try:
                return read_verdict(reply)
            except JudgeError as error:
                messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": _REMINDER}]
                raise _AttemptFailed(str(error)) from error
        except BaseException:
            self.counters.failed_attempts += 1
            raise

    async def _retried(self, attempt: Callable[[], Awaitable[Result]], failures: list[str]) -> Result:
        for number in range(self.config.max_attempts):
            if number:
                backoff_seconds = FIRST_BACKOFF_SECONDS * 2 ** (number - 1)
                await asyncio.sleep(backoff_seconds * random.uniform(0.5, 1.5))
            try:
                return await attempt()
            except _AttemptFailed as error:
                failures.append(str(error))
        raise JudgeError(
            f"no verdict from the judge at {self.config.base_url} in {self.config.max_attempts} attempts; "
            f"the last failed with: {failures[-1]}"
        )

    @asynccontextmanager
    async def _deadline(self, failures: list[str]) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.config.deadline_seconds):
                yield
        except TimeoutError as error:
            what = f"the last attempt failed with: {failures[-1]}" if failures else "it did not reply"
            raise JudgeError(
                f"no verdict from the judge at {self.config.base_url} within {self.config.deadline_seconds} s; {what}"
            ) from error


class _AttemptFailed(JudgeError):
    """One attempt failed in a way that another may not."""


class _Session:
    """What belongs to one event loop."""

    def __init__(self, config: JudgeConfig) -> None:
        from openai import AsyncOpenAI

        self.client = AsyncOpenAI(
            base_url=config.base_url,
            # Given always: the package would else send the key of another service to this endpoint.
            api_key=os.environ.get(config.api_key_env) or "EMPTY",
            timeout=config.deadline_seconds,
            max_retries=0,
        )
        self.slots = asyncio.Semaphore(config.concurrency)
        self.pending: dict[tuple[str, str, str], asyncio.Task[AnswerLabel]] = {}
        self.first_model: str | None = None
        self.first_model_lock = asyncio.Lock()

    def share(self, key: tuple[str, str, str], task: asyncio.Task[AnswerLabel]) -> None:
        """Let identical judgements await `task` until it is done."""
        self.pending[key] = task
        task.add_done_callback(lambda done: self._unshare(key, done))

    def _unshare(self, key: tuple[str, str, str], task: asyncio.Task[AnswerLabel]) -> None:
        del self.pending[key]
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not report it as lost where every caller was cancelled


async def _first_model(session: _Session) -> str:
    async with session.first_model_lock:
        if session.first_model is None:
            session.first_model = (await _list_models(session))[0]
        return session.first_model


async def _list_models(session: _Session) -> list[str]:
    page = await _requested(session.client.models.list())
    names = [model.id for model in getattr(page, "data", None) or []]
    if not names or not all(isinstance(name, str) for name in names):
        raise _AttemptFailed(f"GET /models lists no model: {page!r:.200}")
    return names


async def _requested(request: Awaitable[Any]) -> Any:
    """A reply of the endpoint, or the reason why there is none, as our own error.

    Raises:
        _AttemptFailed: worth another attempt.
        JudgeError: not worth one.
    """
    import openai

    try:
        return await request
    except openai.APIStatusError as error:
        reason = f"HTTP {error.status_code}: {error.message:.200}"
        if error.status_code in _RETRIED_STATUS or error.status_code >= 500:
            raise _AttemptFailed(reason) from error
        raise JudgeError(f"the judge refused the request, {reason}") from error
    # ValueError: a body that claims to be JSON and is not.
    except (openai.OpenAIError, ValueError) as error:
        cause = error.__cause__ or error
        raise _AttemptFailed(f"{type(cause).__name__}: {cause}") from error


def _reply_text(completion: Any) -> str:
    """The text of the first choice."""
    try:
        text = completion["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        text = None
    if not isinstance(text, str):
        raise _AttemptFailed(f"the reply is no chat completion: {completion!r:.200}")
    return text


def _load_prompt(prompt_file: str | None) -> str:
    if prompt_file is None:
        return files(__package__ or "").joinpath("prompt.txt").read_text(encoding="utf-8").strip()
    try:
        return Path(prompt_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read JudgeConfig.prompt_file {prompt_file!r}: {error}") from error
