"""Make the rollouts that a file of records does not hold yet.

A file of records grows by whole lines and is never rewritten, so that a run which was killed goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.machine import page
from verl_video_tools.core.types import Judge, Method, Retriever, Sample, StopReason, ToolModel
from verl_video_tools.data.append import append_record, appended, no_progress, work_through
from verl_video_tools.data.generation.protocol import generation_settings, settled
from verl_video_tools.data.generation.record import Record, RolloutMaker
from verl_video_tools.data.generation.summary import GenerationSummary, Key, RolloutProgress
from verl_video_tools.data.generation.task import RolloutTask
from verl_video_tools.records.records import read_records
from verl_video_tools.rollout.chat_policy import ChatPolicy, PolicyConfig
from verl_video_tools.services.judge import JudgeConfig, LLMJudge
from verl_video_tools.services.tool_model import EndpointToolModel, ToolModelConfig

_ASKED_FIELDS = ("video_path", "video_paths", "image_paths", "question", "subtitles")
_GRADED_FIELDS = ("question_type", "options", "video_segment", "classification")
"""Of `extra_info`: what a rollout was asked, and what its reward and its label depend on beside the truth."""


async def generate(
    tasks: Sequence[RolloutTask],
    out: str | Path,
    method: Method,
    policy: PolicyConfig,
    *,
    server: AbstractAsyncContextManager[str] | None = None,
    judge: JudgeConfig | Judge | None = None,
    instruction: str | None = None,
    seed: int | None = None,
    retriever: Retriever | None = None,
    tool_model: ToolModelConfig | ToolModel | None = None,
    retry_flagged: bool = False,
    label_answers: bool = False,
    max_attempts: int = 1,
    settings: Mapping[str, Any] | None = None,
    versions: Mapping[str, str | None] | None = None,
    progress: RolloutProgress = no_progress,
) -> GenerationSummary:
    """Make the rollouts that `out` does not hold yet, and append each to it as soon as it is scored.

    A rollout that fails (row, video, endpoint, judge) is recorded as flagged, and the others go on.

    Args:
        policy: without a model's name, the first that the endpoint lists.
        server: gives the policy's `base_url`; entered only where a rollout is left to make.
        judge: for open questions: a language model, or a rule.
        instruction: appended to the method's system prompt.
        seed: gives each rollout a seed of its own, the same in every run; None leaves sampling to the endpoint.
        retriever: for methods that find frames by text.
        tool_model: for methods whose tools ask a model.
        retry_flagged: make those again that are recorded as flagged.
        label_answers: also record how each answer compares with the truth (`AnswerLabel`). A reward does not say so: it
            may be withheld from a right answer for its form or its consistency.
        max_attempts: of each rollout, where the method evaluates so (`rollout.attempts`); its record is that of the
            attempt taken, and tells of the others.
        settings: further facts, such as the retriever's fields, for a protocol beside the file (`<out>.protocol.json`);
            rollouts that were made otherwise are not continued then. None: the caller keeps one.
        versions: of packages, kept in each record.
        progress: called before the first rollout and after each.

    Returns:
        What the file then holds.

    Raises:
        UsageError: a question that needs a judge, or a method that needs a retriever or a tool model, without one; or
            `out` holds rollouts of other rows, another method or another model, or made with other settings, is being
            written by another process, or is no such file.
        EndpointError: the endpoint cannot be reached, at first or any more: what is recorded holds, and rollouts under
            way are not; or no model's name was given, and it lists none.
        JudgeError: with `settings`, a judge that is not named cannot be asked for its name.
    """
    if judge is None:
        _check_no_judge_is_needed(method, tasks)
    if method.searches and retriever is None:
        raise UsageError(f"{method.name} searches for frames by text; give --retrieval model=DIR ({page('retrieval')})")
    if method.asks_model and tool_model is None:
        raise UsageError(f"tools of {method.name} ask a model; give --tool-model base_url=URL ({page('tools')})")
    protocol = None
    if settings is not None:
        made = await generation_settings(
            method,
            policy,
            seed=seed,
            judge=judge if isinstance(judge, JudgeConfig) else None,
            tool_model=tool_model if isinstance(tool_model, ToolModelConfig) else None,
        )
        protocol = {"method": method.name, "instruction": instruction, **made, **settings}
    async with AsyncExitStack() as stack:
        if isinstance(tool_model, ToolModelConfig):
            tool_model = await stack.enter_async_context(EndpointToolModel(tool_model))
        asked = await stack.enter_async_context(LLMJudge(judge)) if isinstance(judge, JudgeConfig) else judge
        file = stack.enter_context(appended(Path(out)))
        summary, done, models = _resumed(Path(out), tasks, method, retry_flagged)
        if protocol is not None:
            settled(
                Path(f"{out}.protocol.json"),
                protocol,
                has_rollouts=bool(models),
                otherwise=f"{out} holds rollouts that were made otherwise",
                advice="Give the same options, or another file to write",
            )
        left = [task for task in tasks if task.key not in done]

        def tell(num_done: int, num_wanted: int) -> None:
            progress(num_done, num_wanted, summary.so_far)

        num_done = len(tasks) - len(left)
        tell(num_done, len(tasks))
        if not left:
            return summary
        if server is not None:
            policy = replace(policy, base_url=await stack.enter_async_context(server))
        if policy.model is None:
            async with ChatPolicy(policy) as lister:
                policy = replace(policy, model=(await lister.client.served_models())[0])
        if others := models - {policy.model}:
            raise UsageError(
                f"{out} holds rollouts of the model {min(others)!r}, not of {policy.model!r}, and success rates would "
                "be those of both; give another file to write"
            )
        chat = await stack.enter_async_context(ChatPolicy(policy))
        await chat.client.check_reachable()

        maker = RolloutMaker(
            method=method,
            chat=chat,
            judge=asked,
            instruction=instruction,
            seed=seed,
            retriever=retriever,
            tool_model=tool_model,
            label_answers=label_answers,
            max_attempts=max_attempts,
            versions=versions,
        )

        async def make(task: RolloutTask) -> None:
            record = await maker.make(task)
            if StopReason.ABORTED in record["trajectory"].flags:
                await chat.check_usable()  # else all that is left would fail one by one
            append_record(file, {**record, "trajectory": record["trajectory"].to_dict()})
            summary.add(record)

        stopped = "; {} of {} are recorded, and the next run goes on there"
        await work_through(left, make, policy.concurrency, tell, num_done=num_done, stopped=stopped)
        return summary


def _check_no_judge_is_needed(method: Method, tasks: Sequence[RolloutTask]) -> None:
    for task in tasks:
        try:
            sample = Sample.from_row(task.row)
        except RowError:
            continue  # recorded as a failure of this row
        if sample.question_type == "open" and task.is_graded:
            method.check_sample(sample, None)


def _resumed(
    path: Path, tasks: Sequence[RolloutTask], method: Method, retry_flagged: bool
) -> tuple[GenerationSummary, set[Key], set[str]]:
    """What the file holds, which of its rollouts need not be made again, and whose these are."""
    models = set[str]()
    asked = {task.key: task for task in tasks}
    summary, done = GenerationSummary(is_graded=all(task.is_graded for task in tasks)), set[Key]()
    for record in read_records(path):
        key = str(record["uid"]), int(record["session_id"])
        is_left = retry_flagged and bool(record["trajectory"].flags)
        if key in asked and (changes := _changes(record, asked[key], is_graded=not is_left)):
            raise UsageError(
                f"{path} holds a rollout of another question as row {key[0]}: {'; '.join(changes)}; give the rows that "
                "it was made from, or another file to write"
            )
        if record["agent_name"] != method.name:
            raise UsageError(
                f"{path} holds rollouts of {record['agent_name']!r}, not of {method.name!r}; give another file to write"
            )
        summary.add(record)
        done.discard(key)
        if not is_left:
            done.add(key)
        if not record["trajectory"].flags:
            models.add(record["model"])
    return summary, done, models


def _changes(record: Record, task: RolloutTask, *, is_graded: bool) -> list[str]:
    """What the row says otherwise than the one that a rollout was made from; of grading only where that is to hold."""
    recorded, now = record["extra_info"], task.entries("extra_info")
    names = (*_ASKED_FIELDS, *_GRADED_FIELDS) if is_graded else _ASKED_FIELDS
    values = {f"extra_info.{name}": (recorded.get(name), now.get(name)) for name in names}
    if is_graded:
        values["ground_truth"] = record.get("ground_truth"), task.entries("reward_model").get("ground_truth")
    said = [turn.text for turn in record["trajectory"].turns[: len(task.given_turns)]]
    values["given turns"] = said, [*task.given_turns][: len(said)]
    texts = {name: tuple(json.dumps(value, default=str) for value in pair) for name, pair in values.items()}
    return [f"{name} was {old:.80} and is now {new:.80}" for name, (old, new) in texts.items() if old != new]
