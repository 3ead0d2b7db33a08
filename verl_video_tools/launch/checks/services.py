"""Whether the models beside the policy answer: judge, retriever, and the model that tools ask."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from verl_video_tools.core.errors import VideoToolsError
from verl_video_tools.core.machine import page
from verl_video_tools.launch.checks.installation import judge_checks
from verl_video_tools.launch.checks.planned import PlannedRun
from verl_video_tools.launch.checks.report import Check, Status, one_line
from verl_video_tools.services.retrieval import local
from verl_video_tools.services.tool_model import ToolModelConfig
from verl_video_tools.verl_plugin.settings import judge_config, retrieval_config, tool_model_config

REPLY_SECONDS = 20.0
"""Time for one reply; a run waits longer."""


def check_judge(run: PlannedRun) -> Iterator[Check]:
    """The run's judge. Whether rows need one is a matter of the rows."""
    judge = judge_config(run.config)
    if judge is not None and judge.base_url is None:
        yield Check("judge", "judge", Status.SKIPPED, detail="verl starts it with the run")
    elif judge is not None:
        yield from judge_checks(replace(judge, deadline_seconds=min(judge.deadline_seconds, REPLY_SECONDS)))


def check_retriever(run: PlannedRun) -> Iterator[Check]:
    """Load the run's encoder, on the CPU of this process."""
    retrieval = retrieval_config(run.config.actor_rollout_ref.rollout)
    if retrieval is None:
        return
    try:
        local(replace(retrieval, num_gpus=0.0))
    except (VideoToolsError, ImportError) as error:
        fix = f"correct video_tools.retrieval ({page('retrieval')})"
        yield Check("retriever", "encoder", Status.FAILED, retrieval.model, one_line(error), fix)
    else:
        yield Check("retriever", "encoder", Status.OK, retrieval.model)


def check_tool_model(run: PlannedRun) -> Iterator[Check]:
    """Whether the model that tools ask can be reached and replies."""
    tool_model = tool_model_config(run.config.actor_rollout_ref.rollout)
    if tool_model is not None:
        yield asyncio.run(_ask(replace(tool_model, deadline_seconds=min(tool_model.deadline_seconds, REPLY_SECONDS))))


async def _ask(config: ToolModelConfig) -> Check:
    from verl_video_tools.services.tool_model import EndpointToolModel

    try:
        async with EndpointToolModel(config) as model:
            reply = await model.ask(("Reply with the word ready.",), config.deadline_seconds)
    except VideoToolsError as error:
        fix = f"start the server, or correct video_tools.tool_model ({page('tools')})"
        return Check("tool model", "reply", Status.FAILED, str(config.base_url), one_line(error), fix)
    return Check("tool model", "reply", Status.OK, f"{reply.model}: {reply.text[:40]!r}")
