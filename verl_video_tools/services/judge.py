"""A language model as judge of free-form answers: `LLMJudge` asks many at a time, and says so when it could not.

`VerdictCache` keeps verdicts on disk. `examine_judge` says whether a judge can be reached and tells right from wrong.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import logging
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np

from verl_video_tools.core.entries import EntryFolder
from verl_video_tools.core.errors import EndpointError, JudgeError, UsageError
from verl_video_tools.core.prompts import read_prompt
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.breaker import BreakableClient
from verl_video_tools.services.chat import Completion, read_completion
from verl_video_tools.services.config import JudgeConfig as JudgeConfig
from verl_video_tools.services.endpoint import Exchange
from verl_video_tools.services.transport import AttemptFailed
from verl_video_tools.services.verdict import PROFILES, read_verdict, without_labels

logger = logging.getLogger(__name__)

PROMPTS = "verl_video_tools.services.prompts"
"""The packaged instructions."""

_Messages = list[dict[str, str]]


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
    """Of verdicts that the endpoint gave: from the start of the exchange on, failed attempts and waits included."""

    @property
    def latency_ms_p50(self) -> float:
        return float(np.median(self.latencies_ms)) if self.latencies_ms else 0.0


_UNFILLED = ("{question}", "{reference}", "{ground_truth}", "{answer}")
"""What instructions hold that were written for another judge."""


@dataclass(frozen=True, slots=True)
class CacheKey:
    """All that a verdict depends on."""

    question: str
    truth: str
    answer: str
    prompt: str
    model: str

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


class VerdictCache:
    """Verdicts on disk by content: one small JSON file each, so that processes and machines may share `folder`."""

    def __init__(self, folder: Path) -> None:
        self._entries = EntryFolder(folder)

    def get(self, key: CacheKey) -> str | None:
        entry = self._entries.read(key.digest())
        return None if entry is None else entry["label"]

    def put(self, key: CacheKey, verdict: str) -> None:
        words = asdict(key)
        del words["prompt"]  # long, and the same for many
        self._entries.write(key.digest(), {**words, "label": verdict})


class LLMJudge(BreakableClient[_Messages]):
    """A `Judge` (`verl_video_tools.core.types`) on an OpenAI-compatible endpoint.

    May be used from several event loops, one after the other or in different threads: connections, the bound on
    requests in flight, the sharing of identical judgements and whether the judge counts as down belong to the running
    loop. Close it in each (`async with`, or `aclose`).

    Args:
        config: `base_url` must be set.

    Raises:
        UsageError: no `base_url`, an unreadable prompt file, or the packages of the extra `judge` are not there.
    """

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__(config, "judge", JudgeError)
        self.config = config
        self.counters = JudgeCounters()
        self._profile = PROFILES[config.profile]
        self._prompt = read_prompt(PROMPTS, self._profile.prompt, config.prompt_file)
        if unfilled := next((name for name in _UNFILLED if name in self._prompt), None):
            raise UsageError(
                f"prompt_file {config.prompt_file!r} holds {unfilled}, which nothing fills: question, reference and "
                "answer follow the instructions as one JSON object"
            )
        self._cache = None if config.cache_dir is None else VerdictCache(Path(config.cache_dir))
        self._pending: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pending] = WeakKeyDictionary()

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        """The verdict on one answer. Identical judgements that are under way are asked once.

        Raises:
            JudgeError: no readable reply within `MAX_ATTEMPTS` and `deadline_seconds`, a request that is refused, a
                judge that counts as down, or whatever else went wrong on the way.
        """
        return AnswerLabel(await self._shared((self._prompt, question, truth, answer)))

    async def _shared(self, key: _Key) -> str:
        self.counters.calls += 1
        pending = self._pending.setdefault(asyncio.get_running_loop(), {})
        shared = key in pending
        if not shared:
            _share(pending, key, asyncio.create_task(self._decide(*key)))
        try:
            # Shielded: one caller's cancellation must not cost the others their verdict.
            verdict = await asyncio.shield(pending[key])
        except JudgeError:
            self.counters.failures += 1
            raise
        self.counters.cache_hits += shared
        return verdict

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
        try:
            return await self._endpoint.served_models()
        except EndpointError as error:
            raise JudgeError(str(error)) from error

    # ------------------------------------------------------------------------------------------------------- internals

    async def _decide(self, prompt: str, question: str, truth: str, answer: str) -> str:
        """One judgement. Whatever goes wrong on its way is no verdict: the caller has to flag the rollout."""
        try:
            return await self._verdict(prompt, question, truth, answer)
        except JudgeError:
            raise
        except EndpointError as error:
            raise JudgeError(f"no verdict from the judge: {error}") from error
        except Exception as error:
            logger.exception("a judgement failed in an unforeseen way")
            raise JudgeError(f"no verdict from the judge: {type(error).__name__}: {error}") from error

    async def _verdict(self, prompt: str, question: str, truth: str, answer: str) -> str:
        """Its place in the queue, its model, the cache, then attempts until one is readable."""
        # JSON is the fence: a string ends where its quotation mark does, whatever the answer holds.
        shown = {"question": question} if question else {}
        data = {**shown, "reference": truth, "answer": without_labels(answer)}
        user = {"role": "user", "content": json.dumps(data, ensure_ascii=False)}
        messages = [{"role": "system", "content": prompt}, user]
        breaker = self._breaker()
        try:
            async with self._endpoint.exchange() as exchange:
                if exchange.known_model is None:
                    breaker.check(messages)
                model = await exchange.model()
                key = CacheKey(question, truth, answer, prompt, self._sampled(model))
                kept = None if self._cache is None else await asyncio.to_thread(self._cache.get, key)
                # Another profile with the same instructions may have kept a label that this one does not know.
                if kept in [label.value for label in self._profile.labels]:
                    self.counters.cache_hits += 1
                    return kept
                breaker.check(messages)
                verdict = await exchange.retried(lambda: self._ask(exchange, model, messages))
                self.counters.latencies_ms.append((asyncio.get_running_loop().time() - exchange.began_at) * 1e3)
        except EndpointError as error:
            if exchange.is_late:
                breaker.failed(messages, error)
            raise
        if self._cache is not None:
            await asyncio.to_thread(self._cache.put, key, verdict)
        return verdict

    async def _ask(self, exchange: Exchange, model: str, messages: _Messages) -> str:
        """One attempt. An unreadable reply is answered in `messages`: asked the same, a model says the same again."""
        self.counters.attempts += 1
        try:
            completion = read_completion(await exchange.chat_completion(self._request(model, messages)))
            self._breaker().replied()
            try:
                return self._label(self._whole(completion))
            except JudgeError as error:
                messages += [
                    {"role": "assistant", "content": completion.text},
                    {"role": "user", "content": self._profile.reminder},
                ]
                raise AttemptFailed(str(error)) from error
        except BaseException:
            self.counters.failed_attempts += 1
            raise

    def _label(self, reply: str) -> str:
        """The label of a reply. Raises JudgeError also for one that the profile does not know."""
        label = read_verdict(reply)
        if label not in self._profile.labels:
            raise JudgeError(f"the judge's label {label.value!r} is none of the profile {self.config.profile!r}")
        return label.value

    def _whole(self, completion: Completion) -> str:
        """A reply. Raises JudgeError for one that was cut, whatever verdict it holds so far."""
        if completion.finish_reason != "length":
            return completion.text
        limit = "" if self.config.max_tokens is None else f" at max_tokens={self.config.max_tokens}"
        raise JudgeError(
            f"the judge's reply {completion.text[:200]!r} was cut{limit}: give a judge that thinks longer more"
        )

    def _sampled(self, model: str) -> str:
        """What gives a verdict: the model, and its temperature where that is not 0."""
        temperature = self.config.temperature
        return model if temperature == 0 else f"{model} at temperature {temperature:g}"

    def _request(self, model: str, question: _Messages) -> dict[str, Any]:
        body: dict[str, Any] = {"model": model, "messages": question, "temperature": self.config.temperature}
        if self.config.max_tokens is not None:
            body["max_tokens"] = self.config.max_tokens
        return body


_Key = tuple[str, str, str, str]
_Pending = dict[_Key, asyncio.Task[str]]
"""Judgements that are under way in one event loop, by instructions, question, truth and answer."""


def _share(pending: _Pending, key: _Key, task: asyncio.Task[str]) -> None:
    """Let identical judgements await `task` until it is done."""

    def unshare(task: asyncio.Task[str]) -> None:
        del pending[key]
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not report it as lost where every caller was cancelled

    pending[key] = task
    task.add_done_callback(unshare)


# -------------------------------------------------------------------------------------------------------------- health

_QUESTION = "Which animal crosses the road, and when?"
_TRUTH = "a brown dog, after the lorry has passed"
_KNOWN_ANSWERS = {
    AnswerLabel.CORRECT: "A brown dog, once the lorry has passed.",
    AnswerLabel.INCORRECT: "No animal crosses the road at any time.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `fault` says what is wrong, and is empty where nothing is."""

    name: str
    found: str = ""
    fault: str = ""


async def examine_judge(config: JudgeConfig) -> list[Finding]:
    """Is a judge reachable, is its model served, and does it tell a right answer from a wrong one?

    Stops at the first thing that makes the rest pointless. Verdicts are neither read from a cache nor kept.
    """
    async with LLMJudge(replace(config, cache_dir=None)) as judge:
        try:
            models = await judge.served_models()
        except JudgeError as error:
            return [Finding("endpoint", fault=str(error))]
        findings = [Finding("endpoint", found=", ".join(config.base_urls))]
        if config.model is not None and config.model not in models:
            return [*findings, Finding("model", fault=f"{config.model!r} is not served; served are {models!r}")]
        findings.append(Finding("model", found=config.model or models[0]))
        for wanted, answer in _KNOWN_ANSWERS.items():
            name = f"known {wanted.value} answer"
            try:
                label = await judge.judge(_QUESTION, _TRUTH, answer)
            except JudgeError as error:
                findings.append(Finding(name, fault=str(error)))
                continue
            fault = "" if label is wanted else f"was called {label.value}: this model cannot judge with this prompt"
            findings.append(Finding(name, label.value, fault))
        return findings
