"""A language model as judge of free-form answers: `LLMJudge` sends many requests at a time, and raises where it gets
no verdict.

`VerdictCache` keeps verdicts on disk. `examine_judge` says whether a judge can be reached and tells right from wrong.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import logging
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from verl_video_tools.core.errors import EndpointError, JudgeError, UsageError
from verl_video_tools.core.files import whole_file
from verl_video_tools.core.prompts import read_prompt
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.attempts import Attempts
from verl_video_tools.services.config import JudgeConfig as JudgeConfig
from verl_video_tools.services.endpoint import Completion, EndpointClient, Refused, UnusableReply
from verl_video_tools.services.verdict import PROFILES, read_verdict, without_labels

logger = logging.getLogger(__name__)

PROMPTS = "verl_video_tools.services.prompts"
"""The packaged instructions."""

MAX_ANSWER_CHARACTERS = 4_000
"""Largest length of an answer that the judge reads; the rest is cut off. A policy must not gain anything by a text that
is longer than the judge's server accepts."""


@dataclass
class JudgeCounters:
    """Counts of judgements."""

    calls: int = 0
    """Judgements that were requested."""
    cache_hits: int = 0
    """Judgements that came from disk."""
    failures: int = 0
    """Judgements that ended without a verdict."""
    attempts: int = 0
    """HTTP requests for a verdict that were sent."""
    failed_attempts: int = 0
    """HTTP requests without a usable reply."""
    latencies_ms: list[float] = field(default_factory=list)
    """Time of each verdict that the endpoint gave, from the start of the exchange, with failed attempts and waits."""

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


class VerdictCache:
    """Verdicts on disk by content. Each verdict is a small JSON file, so that processes and machines may share
    `folder`.

    A file appears as a whole. A damaged file, or one with the name of another, counts as absent.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: CacheKey) -> str | None:
        try:
            entry = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or not isinstance(label := entry.get("label"), str):
            return None
        return label if entry == _cache_entry(key, label) else None

    def put(self, key: CacheKey, verdict: str) -> None:
        """Store a verdict. If the disk is full or read-only, the entry is lost, but the verdict is not."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as partial:
                partial.write_text(json.dumps(_cache_entry(key, verdict)), encoding="utf-8")
        except OSError as error:
            logger.warning("nothing could be cached in %s: %s", self._folder, error)

    def _path(self, key: CacheKey) -> Path:
        digest = _digest(asdict(key))
        return self._folder / digest[:2] / f"{digest}.json"


def _cache_entry(key: CacheKey, label: str) -> dict[str, str]:
    """What a file holds. The checksum reveals a label that was changed."""
    entry = {**asdict(key), "label": label}
    return {**entry, "sha256": _digest(entry)}


def _digest(content: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class LLMJudge(EndpointClient):
    """A `Judge` (`verl_video_tools.core.types`) on an OpenAI-compatible endpoint.

    Args:
        config: `base_url` must be set.

    Raises:
        UsageError: there is no `base_url`, the prompt file cannot be read, or the packages of the extra `judge` are
            missing.
    """

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__(config, "judge")
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

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        """The verdict on one answer.

        An answer is incorrect if a working judge has no verdict on it. The policy wrote this answer, and would
        otherwise learn to write what no judge can read.

        Raises:
            JudgeError: the judge could not be reached in time, has not shown that it works, or failed in another way.
        """
        self.counters.calls += 1
        try:
            try:
                return AnswerLabel(await self._verdict(question, truth, _as_read(answer)))
            except Refused as error:
                if not self.has_answered:
                    await self._ask(_QUESTION, _TRUTH, _EXAMPLE_ANSWERS[AnswerLabel.INCORRECT])
                logger.warning("an answer that the judge does not judge counts as incorrect: %s", error)
                return AnswerLabel.INCORRECT
        except EndpointError as error:
            self.counters.failures += 1
            raise JudgeError(f"no verdict from the judge: {error}") from error

    def counting_in(self, counters: JudgeCounters) -> Self:
        """The same judge with the same connections and limits, which counts its judgements in `counters`."""
        twin = copy.copy(self)
        twin.counters = counters
        return twin

    # ------------------------------------------------------------------------------------------------------- internals

    async def _verdict(self, question: str, truth: str, answer: str) -> str:
        """A verdict, from the cache or from the judge."""
        temperature, model = self.config.temperature, await self.model()
        named = model if temperature == 0 else f"{model} at temperature {temperature:g}"
        key = CacheKey(question, truth, answer, self._prompt, named)
        cached = None if self._cache is None else await asyncio.to_thread(self._cache.get, key)
        # Another profile with the same instructions may have cached a label that this one does not know.
        if cached in [label.value for label in self._profile.labels]:
            self.counters.cache_hits += 1
            return str(cached)
        verdict = await self._ask(question, truth, answer)
        if self._cache is not None:
            await asyncio.to_thread(self._cache.put, key, verdict)
        return verdict

    async def _ask(self, question: str, truth: str, answer: str) -> str:
        # JSON is the fence: a string ends where its quotation mark does, whatever the answer holds.
        fields = {"question": question} if question else {}
        data = {**fields, "reference": truth, "answer": without_labels(answer)}
        user = {"role": "user", "content": json.dumps(data, ensure_ascii=False)}
        body: dict[str, Any] = {
            "messages": [{"role": "system", "content": self._prompt}, user],
            "temperature": self.config.temperature,
        }
        if self.config.max_tokens is not None:
            body["max_tokens"] = self.config.max_tokens
        attempts, num_usable = Attempts(), 0
        try:
            verdict = await self.complete(body, self._label, attempts=attempts)
            num_usable = 1
        finally:
            self.counters.attempts += attempts.num_sent
            self.counters.failed_attempts += attempts.num_sent - num_usable
        self.counters.latencies_ms.append((time.monotonic() - attempts.began_at) * 1e3)
        return verdict

    def _label(self, reply: Completion) -> str:
        """The label of a reply. Raises UnusableReply for one that was cut, whatever it holds so far, states no label,
        or one that the profile does not know."""
        if reply.finish_reason == "length":
            limit = "" if self.config.max_tokens is None else f" at max_tokens={self.config.max_tokens}"
            fault = f"the judge's reply {reply.text[:200]!r} was cut{limit}: give a judge that thinks longer more"
            raise UnusableReply(fault, self._profile.reminder)
        if not reply.text.strip():
            raise UnusableReply(f"the judge's reply is {reply.excerpt}", self._profile.reminder)
        try:
            label = read_verdict(reply.text)
        except JudgeError as error:
            raise UnusableReply(str(error), self._profile.reminder) from error
        if label not in self._profile.labels:
            fault = f"the judge's label {label.value!r} does not belong to the profile {self.config.profile!r}"
            raise UnusableReply(fault, self._profile.reminder)
        return label.value


def _as_read(answer: str) -> str:
    """An answer as the judge reads it: bounded, and without halves of surrogate pairs, which have no UTF-8."""
    whole = answer.encode("utf-8", "replace").decode()
    return whole if len(whole) <= MAX_ANSWER_CHARACTERS else f"{whole[:MAX_ANSWER_CHARACTERS]} [...]"


# -------------------------------------------------------------------------------------------------------------- health

_QUESTION = "Which animal crosses the road, and when?"
_TRUTH = "a brown dog, after the lorry has passed"
_EXAMPLE_ANSWERS = {
    AnswerLabel.CORRECT: "A brown dog, once the lorry has passed.",
    AnswerLabel.INCORRECT: "No animal crosses the road at any time.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `fault` says what is wrong, and is empty if nothing is."""

    name: str
    found: str = ""
    fault: str = ""


async def examine_judge(config: JudgeConfig) -> list[Finding]:
    """Check that a judge can be reached and tells a right answer from a wrong one.

    Verdicts are neither read from a cache nor stored in it.
    """
    async with LLMJudge(replace(config, cache_dir=None)) as judge:
        try:
            await judge.check_reachable()
            findings = [Finding("endpoint", f"{await judge.model()} at {', '.join(config.base_urls)}")]
        except EndpointError as error:
            return [Finding("endpoint", fault=str(error))]
        for expected, answer in _EXAMPLE_ANSWERS.items():
            try:
                label = await judge.judge(_QUESTION, _TRUTH, answer)
            except JudgeError as error:
                findings.append(Finding(f"known {expected.value} answer", fault=str(error)))
                continue
            fault = "" if label is expected else f"was called {label.value}: this model cannot judge with this prompt"
            findings.append(Finding(f"known {expected.value} answer", label.value, fault))
        return findings
