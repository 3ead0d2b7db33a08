"""The engine core's GPU, replaced by a script: vLLM's scheduler, prefix cache and encoder budget are the real ones.

A request's id names what is to be said: `<hex>v<variant>t<turn>`. Counts what a GPU would have computed.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput

from .cases import SCRIPT_VARIABLE

_NUM_KV_TOKENS = 2_000_000
_REQUEST_ID = re.compile(r"v(\d+)t(\d+)")


class ScriptedExecutor(Executor):
    """Says what the script says, a token per step, at no cost."""

    def _init_executor(self) -> None:
        with open(os.environ[SCRIPT_VARIABLE]) as file:
            script = json.load(file)
        self._turns: list[list[list[int]]] = script["turns"]
        self._num_initial: int = script["num_initial"]
        self._said: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        self._initial: dict[str, int] = {}
        self._counts: Counter[str] = Counter()

    def collective_rpc(
        self, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None, non_block: bool = False
    ) -> Any:
        match method:
            case "get_supported_tasks":
                result: Any = [("generate",)]
            case "bench_counts":
                result = [dict(self._counts)]
                self._counts.clear()
            case _:
                result = [None]
        return _done(result) if non_block else result

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        self._spec = FullAttentionSpec(
            block_size=self.cache_config.block_size or 16, num_kv_heads=1, head_size=32, dtype=torch.bfloat16
        )
        return [{"layer": self._spec}]

    def determine_available_memory(self) -> list[int]:
        return [_NUM_KV_TOKENS // self._spec.block_size * self._spec.page_size_bytes]

    def initialize_from_config(self, kv_cache_configs: Any) -> None: ...

    def check_health(self) -> None: ...

    def shutdown(self) -> None: ...

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        computed = {}
        for new in scheduler_output.scheduled_new_reqs:
            self._begin(new)
            computed[new.req_id] = new.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for indices in scheduler_output.scheduled_encoder_inputs.values():
            self._counts["images_encoded"] += len(indices)
            self._counts["initial_images_encoded"] += sum(index < self._num_initial for index in indices)
        req_ids, sampled = list(scheduler_output.num_scheduled_tokens), []
        for req_id in req_ids:
            scheduled = scheduler_output.num_scheduled_tokens[req_id]
            until = computed[req_id] + scheduled
            self._counts["tokens_computed"] += scheduled
            self._counts["initial_tokens_computed"] += max(0, min(until, self._initial[req_id]) - computed[req_id])
            sampled.append([self._next(req_id)] if until >= self._lengths[req_id] + self._said[req_id] else [])
        for req_id in scheduler_output.finished_req_ids:
            for state in (self._said, self._lengths, self._initial):
                state.pop(req_id, None)
        output = ModelRunnerOutput(
            req_ids=req_ids,
            req_id_to_index={req_id: index for index, req_id in enumerate(req_ids)},
            sampled_token_ids=sampled,
            logprobs=_logprobs(sampled),
        )
        return _done(output) if non_block else output

    def _begin(self, new: Any) -> None:
        features = new.mm_features[: self._num_initial]
        last = features[-1].mm_position if features else None
        self._initial[new.req_id] = last.offset + last.length if last else 0
        self._lengths[new.req_id] = len(new.prompt_token_ids)
        self._said[new.req_id] = 0
        self._counts["requests"] += 1
        self._counts["images_shown"] += len(new.mm_features)
        self._counts["initial_tokens"] = max(self._counts["initial_tokens"], self._initial[new.req_id])

    def _next(self, req_id: str) -> int:
        variant, turn = map(int, _REQUEST_ID.search(req_id).groups())  # type: ignore[union-attr]  # all ids match
        said = self._turns[variant % len(self._turns)][turn]
        number = self._said[req_id]
        self._said[req_id] += 1
        return said[min(number, len(said) - 1)]


def _logprobs(sampled: list[list[int]]) -> Any:
    """A log-probability of -0.5 for each token."""
    ids = np.array([[token] for tokens in sampled for token in tokens] or [[0]], dtype=np.int32)
    starts = [0]
    for tokens in sampled:
        starts.append(starts[-1] + len(tokens))
    ids = ids[: starts[-1]]
    return LogprobsLists(ids, np.full(ids.shape, -0.5, np.float32), np.ones(len(ids), np.int32), starts)


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future
