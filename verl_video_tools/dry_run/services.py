"""Whether the models beside the policy answer: judge, retriever, and the model that tools ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.core.check import Check, Status, one_line
from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.core.pages import page
from verl_video_tools.dry_run.first_frames import Prompt
from verl_video_tools.dry_run.judge import judge_checks
from verl_video_tools.services.config import ToolModelConfig
from verl_video_tools.services.retrieval import RetrievalService, local
from verl_video_tools.verl_plugin.settings import judge_config, retrieval_config, tool_model_config

REPLY_SECONDS = 20.0
"""Time for one reply; a run waits longer."""


def check_judge(config: DictConfig) -> list[Check]:
    """The run's judge. Whether rows need one is a matter of the rows."""
    judge = judge_config(config)
    if judge is None:
        return [Check("judge", "judge", Status.OK, "none", f"open questions need one ({page('judge')})")]
    if judge.base_url is None:
        path = OmegaConf.select(config, "reward.reward_model.model_path")
        return [Check("judge", "judge", Status.SKIPPED, str(path), "verl starts it with the run")]
    return judge_checks(replace(judge, deadline_seconds=min(judge.deadline_seconds, REPLY_SECONDS)))


def load_retriever(config: DictConfig) -> tuple[RetrievalService | None, list[Check]]:
    """The run's retriever, on the CPU of this process."""
    fix = f"correct video_tools.retrieval ({page('retrieval')})"
    try:
        found = retrieval_config(config.actor_rollout_ref.rollout)
    except UsageError as error:
        return None, [Check("retriever", "options", Status.FAILED, detail=str(error), fix=fix)]
    if found is None:
        return None, []
    started = time.perf_counter()
    try:
        service = local(replace(found, num_gpus=0.0))
    except (VideoToolsError, ImportError) as error:
        return None, [Check("retriever", "encoder", Status.FAILED, found.model, one_line(error), fix)]
    detail = f"loaded in {time.perf_counter() - started:.1f} s"
    return service, [Check("retriever", "encoder", Status.OK, found.model, detail)]


async def check_query(retriever: RetrievalService, prompt: Prompt) -> Check:
    """One query over eight frames of a row's video.

    Args:
        prompt: of a row with a video.
    """
    info = prompt.info
    assert info is not None and prompt.sample.video_path
    candidates = sorted({index * info.num_frames // 8 for index in range(8)})
    question = prompt.sample.question[:200]
    try:
        best = await retriever.best_frames(prompt.sample.video_path, candidates, question, 1, REPLY_SECONDS)
    except VideoToolsError as error:
        return Check("retriever", "query", Status.FAILED, detail=one_line(error), fix=f"see {page('retrieval')}")
    return Check("retriever", "query", Status.OK, f"frame {best[0]}, of {len(candidates)} compared")


def check_tool_model(config: DictConfig) -> Iterator[Check]:
    """Whether the model that tools ask can be reached and replies."""
    found = tool_model_config(config.actor_rollout_ref.rollout)
    if found is not None:
        yield asyncio.run(_ask(replace(found, deadline_seconds=min(found.deadline_seconds, REPLY_SECONDS))))


async def _ask(config: ToolModelConfig) -> Check:
    from verl_video_tools.services.tool_model import EndpointToolModel

    fix = f"start the server, or correct video_tools.tool_model ({page('tools')})"
    try:
        async with EndpointToolModel(config) as model:
            reply = await model.ask(("Reply with the word ready.",), config.deadline_seconds)
    except VideoToolsError as error:
        return Check("tool model", "reply", Status.FAILED, str(config.base_url), one_line(error), fix)
    return Check("tool model", "reply", Status.OK, f"{reply.model}: {reply.text[:40]!r}")
