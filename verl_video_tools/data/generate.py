"""Rollouts of a chat model behind an endpoint, scored and recorded one JSON line each.

A file of records grows by whole lines and is never rewritten, so that a run which was killed goes on where it stopped.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import JudgeError, RowError, UsageError
from verl_video_tools.core.grading import grade_answer
from verl_video_tools.core.method import method_of_rollout
from verl_video_tools.core.pages import page
from verl_video_tools.core.prompt_files import other_prompt, prompt_digest
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.core.types import AnswerLabel, Judge, Method, Retriever, Sample, StopReason, ToolModel, Trajectory
from verl_video_tools.data.append import append_record, appended, no_progress, work_through
from verl_video_tools.data.dialogue_templates import DialogueTemplate, allotted
from verl_video_tools.data.generation_summary import GenerationSummary, Key, RolloutProgress
from verl_video_tools.data.parquet import read_table
from verl_video_tools.methods.breakdown import reward_info
from verl_video_tools.records.records import read_records
from verl_video_tools.rollout.attempts import Attempts, attempted
from verl_video_tools.rollout.chat_policy import ChatPolicy, ChatRollout, PolicyConfig, Usage
from verl_video_tools.services.judge import JudgeConfig, LLMJudge, make_judge
from verl_video_tools.services.judge.rubrics import RUBRICS, Rubric
from verl_video_tools.services.tool_model import ToolModelConfig
from verl_video_tools.services.tool_model.client import EndpointToolModel

logger = logging.getLogger(__name__)

Record = dict[str, Any]
"""A line of the file, as `records.records` describes it; without tokens and advantage, which only training has.

`answer_label` says how the answer compares with the truth, where that was asked for and the rollout is not flagged;
`scores` are those of the task's rubric, if it has one.
`usage` is what the endpoint's replies cost (`chat_policy.Usage`), `seconds` what the rollout took, waiting included.
"""

_ASKED_FIELDS = ("video_path", "video_paths", "image_paths", "question", "subtitles")
_GRADED_FIELDS = ("question_type", "options", "video_segment", "classification")
"""Of `extra_info`: what a rollout was asked, and what its reward and its label depend on beside the truth."""


@dataclass(frozen=True)
class RolloutTask:
    """One rollout to be made.

    Attributes:
        uid: shared by the rollouts of one question.
        session_id: number of the rollout among those.
        row: `data_source`, `reward_model` and `extra_info` of the question.
        given_turns: assistant turns that the rollout starts with.
        given_initial_frames: indices of the frames that these turns were written about; None: whatever the method
            shows.
        given_prompt_digest: of the prompt file that these turns were written under; None: the packaged prompt.
        settings: fields of the method that are this rollout's own, kept in its record.
        template: form that the dialogue is to take; recorded with how the dialogue departs from it.
        is_graded: False: the row has no truth, or a rubric; the rollout earns nothing, and has no label.
        rubric: name of the one that the judge scores the answer by (`services.judge.rubrics`); None: it is not scored.
    """

    uid: str
    session_id: int
    row: Mapping[str, Any]
    given_turns: tuple[str, ...] = ()
    given_initial_frames: tuple[int, ...] | None = None
    given_prompt_digest: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    template: DialogueTemplate | None = None
    is_graded: bool = True
    rubric: str | None = None

    @property
    def key(self) -> Key:
        return self.uid, self.session_id


def tasks_of_rows(
    rows_parquet: str | Path, num_samples: int, templates: Sequence[DialogueTemplate] = (), seed: int | None = None
) -> list[RolloutTask]:
    """So many rollouts of each row; the uid is the row's place in the file, from 0.

    Args:
        templates: forms of which each dialogue takes one, by their shares; `seed` decides which.

    Raises:
        UsageError: the file cannot be read, or has no rows; or no template suits one of them.
    """
    rows = read_table(rows_parquet).to_pylist()
    if not rows:
        raise UsageError(f"{rows_parquet} has no rows")
    tasks = [RolloutTask(str(number), sample, row) for number, row in enumerate(rows) for sample in range(num_samples)]
    if not templates:
        return tasks
    questions = [str(_entries(task.row, "extra_info").get("question", "")) for task in tasks]
    forms = allotted(templates, questions, seed or 0)
    return [replace(task, template=form) for task, form in zip(tasks, forms, strict=True)]


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
        progress: called before the first rollout and after each.

    Returns:
        What the file then holds.

    Raises:
        UsageError: a question that needs a judge, or a method that needs a retriever or a tool model, without one; or
            `out` holds rollouts of other rows or another method, is being written by another process, or is no such
            file.
        EndpointError: the endpoint cannot be reached, at first or any more: what is recorded holds, and rollouts under
            way are not; or no model's name was given, and it lists none.
    """
    if judge is None:
        _check_no_judge_is_needed(method, tasks)
    if not isinstance(judge, JudgeConfig) and any(task.rubric is not None for task in tasks):
        raise UsageError(f"answers are scored by a rubric, which needs a language model as judge ({page('judge')})")
    if method.searches and retriever is None:
        raise UsageError(f"{method.name} searches for frames by text; give --retrieval model=DIR ({page('retrieval')})")
    if method.asks_model and tool_model is None:
        raise UsageError(f"tools of {method.name} ask a model; say which one: --tool-model-base-url ({page('tools')})")
    async with AsyncExitStack() as stack:
        if isinstance(tool_model, ToolModelConfig):
            tool_model = await stack.enter_async_context(EndpointToolModel(tool_model))
        services = {"retriever": retriever, "tool_model": tool_model}
        asked = await stack.enter_async_context(make_judge(judge)) if isinstance(judge, JudgeConfig) else judge
        file = stack.enter_context(appended(Path(out), "step"))
        summary, done = _resumed(Path(out), tasks, method, retry_flagged)
        left = [task for task in tasks if task.key not in done]
        _tell_other_prompts(left, method)

        def tell(num_done: int, num_wanted: int) -> None:
            progress(num_done, num_wanted, summary.so_far)

        tell(len(tasks) - len(left), len(tasks))
        if not left:
            return summary
        if server is not None:
            policy = replace(policy, base_url=await stack.enter_async_context(server))
        if policy.model is None:
            async with ChatPolicy(policy) as lister:
                policy = replace(policy, model=(await lister.client.served_models())[0])
        chat = await stack.enter_async_context(ChatPolicy(policy))
        await chat.client.check_reachable()

        async def make(task: RolloutTask) -> None:
            record = await _record(task, method, chat, asked, instruction, seed, services, label_answers, max_attempts)
            if StopReason.ABORTED in record["trajectory"].flags:
                await chat.check_usable()  # else all that is left would fail one by one
            append_record(file, {**record, "trajectory": record["trajectory"].to_dict()})
            summary.add(record)

        stopped = "; {} of {} are recorded, and the next run goes on there"
        num_done = len(tasks) - len(left)
        await work_through(left, make, policy.concurrency, tell, num_done=num_done, stopped=stopped)
        return summary


# ------------------------------------------------------------------------------------------------------------ rollouts


async def _record(
    task: RolloutTask,
    method: Method,
    chat: ChatPolicy,
    judge: Judge | None,
    instruction: str | None,
    seed: int | None,
    services: Mapping[str, Any],
    label_answers: bool,
    max_attempts: int,
) -> Record:
    reward = method.zero_reward()
    attempts: Attempts | None = None
    label: AnswerLabel | None = None
    scores: dict[str, int] | None = None
    sample: Sample | None = None
    rollout = ChatRollout(Trajectory(method=method.name, question=""), 0)
    seconds = 0.0
    try:
        method = method_of_rollout(method, task.settings)
        sample = Sample.from_row(task.row)
        if task.is_graded:
            method.check_sample(sample, judge)
        began = time.perf_counter()
        rollouts: list[ChatRollout] = []

        async def attempt(own: Method, number: int, sample: Sample = sample) -> Trajectory:
            made = await chat.rollout(
                own,
                sample,
                given_turns=task.given_turns,
                given_initial_frames=task.given_initial_frames,
                instruction=_joined(instruction, "" if task.template is None else task.template.instruction),
                seed=_seed_of(task, seed, number),
                **services,
            )
            rollouts.append(made)
            return made.trajectory

        attempts = await attempted(method, attempt, max_attempts)
        rollout = ChatRollout(
            attempts.trajectory,
            sum(made.num_generated_tokens for made in rollouts),
            sum((made.usage for made in rollouts), Usage()),
        )
        seconds = time.perf_counter() - began
        if task.is_graded and not rollout.trajectory.flags:
            once = None if judge is None else _AskedOnce(judge)
            if label_answers:
                label = await grade_answer(rollout.trajectory.answer, sample, once)
            reward = await method.score(rollout.trajectory, sample, once)
        if task.rubric is not None and not rollout.trajectory.flags:
            scores = await _scores(judge, RUBRICS[task.rubric], sample, rollout.trajectory.answer)
    except JudgeError as error:
        rollout.trajectory.flags.append(JUDGE_FLAG)
        rollout.trajectory.error = str(error)
    except (RowError, UsageError) as error:
        logger.error("rollout %s of row %s: %s", task.session_id, task.uid, error)
        _abort(rollout.trajectory, "row_error", str(error))
    except Exception as error:
        logger.exception("rollout %s of row %s", task.session_id, task.uid)
        _abort(rollout.trajectory, "exception", repr(error))
    own_settings = {} if attempts is None else attempts.method.own_settings(method)
    rollout.trajectory.settings = {**task.settings, **own_settings}
    return {
        "step": 0,
        "uid": task.uid,
        "session_id": task.session_id,
        "agent_name": method.name,
        "data_source": task.row.get("data_source"),
        "ground_truth": _entries(task.row, "reward_model").get("ground_truth"),
        "extra_info": _entries(task.row, "extra_info"),
        "model": chat.config.model,
        "first_trained_turn": len(task.given_turns),
        "reward": reward_info(method, reward, sample, bool(rollout.trajectory.flags)),
        "answer_label": label,
        **({} if scores is None else {"scores": scores}),
        "num_generated_tokens": rollout.num_generated_tokens,
        "usage": asdict(rollout.usage),
        "seconds": round(seconds, 3),
        **_form_of(task.template, rollout.trajectory),
        **({} if attempts is None or max_attempts == 1 else _told_of(attempts)),
        "trajectory": rollout.trajectory,
    }


async def _scores(judge: Judge | None, rubric: Rubric, sample: Sample, answer: str | None) -> dict[str, int]:
    if answer is None or not answer.strip():
        return rubric.lowest
    assert isinstance(judge, LLMJudge)  # `generate` has seen to it
    return await judge.rate(rubric, sample.question, sample.ground_truth, answer)


def _told_of(attempts: Attempts) -> Record:
    """What became of each attempt at a question, and the number of the one taken, if any."""
    return {"attempts": [attempt.summary() for attempt in attempts.made], "attempt_taken": attempts.taken}


def _joined(instruction: str | None, of_template: str) -> str | None:
    return "\n\n".join(text for text in (instruction, of_template) if text) or None


def _form_of(template: DialogueTemplate | None, trajectory: Trajectory) -> Record:
    """The form that a dialogue was to take, and how it departs from that; a failed one does not count as departing."""
    if template is None:
        return {}
    fault = None if trajectory.flags else template.fault(trajectory)
    return {"template": template.name, "template_fault": fault}


def _entries(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A column of named entries; none where it holds something else, for which the rollout is flagged."""
    given = row.get(name)
    return given if isinstance(given, Mapping) else {}


@dataclass
class _AskedOnce:
    """A judge that says again what it said of the same answer: reward and label ask for one verdict."""

    judge_asked: Judge
    labels: dict[tuple[str, str, str], AnswerLabel] = field(default_factory=dict)

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        key = question, truth, answer
        if key not in self.labels:
            self.labels[key] = await self.judge_asked.judge(*key)
        return self.labels[key]


def _abort(trajectory: Trajectory, flag: str, error: str) -> None:
    trajectory.stop_reason, trajectory.error = StopReason.ABORTED, error
    trajectory.flags.append(flag)


def _seed_of(task: RolloutTask, seed: int | None, attempt: int = 1) -> int | None:
    """Apart for each rollout, with room for its turns."""
    again = "" if attempt == 1 else f"/{attempt}"
    return None if seed is None else random.Random(f"{seed}/{task.uid}/{task.session_id}{again}").getrandbits(30)


def _tell_other_prompts(tasks: Sequence[RolloutTask], method: Method) -> None:
    """Warn of given turns that were written under another system prompt than the one that they are continued under."""
    current = prompt_digest(method.prompt_file)
    different = Counter(other_prompt(task.given_prompt_digest, current) for task in tasks if task.given_turns)
    for difference, count in different.items():
        if difference is not None:
            logger.warning("%d rollouts to be continued: %s", count, difference)


def _check_no_judge_is_needed(method: Method, tasks: Sequence[RolloutTask]) -> None:
    for task in tasks:
        try:
            sample = Sample.from_row(task.row)
        except RowError:
            continue  # recorded as a failure of this row
        if sample.question_type == "open" and task.is_graded:
            method.check_sample(sample, None)


# ---------------------------------------------------------------------------------------------------------------- file


def _resumed(
    path: Path, tasks: Sequence[RolloutTask], method: Method, retry_flagged: bool
) -> tuple[GenerationSummary, set[Key]]:
    """What the file holds, and which of its rollouts need not be made again."""
    rows = {task.key: task.row for task in tasks}
    summary, done = GenerationSummary(is_graded=all(task.is_graded for task in tasks)), set[Key]()
    for record in read_records(path):
        key = str(record["uid"]), int(record["session_id"])
        is_left = retry_flagged and bool(record["trajectory"].flags)
        if key in rows and (changes := _changes(record, rows[key], is_graded=not is_left)):
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
    return summary, done


def _changes(record: Record, row: Mapping[str, Any], *, is_graded: bool) -> list[str]:
    """What the row says otherwise than the one that a rollout was made from; of grading only where that is to hold."""
    recorded, now = record["extra_info"], _entries(row, "extra_info")
    names = (*_ASKED_FIELDS, *_GRADED_FIELDS) if is_graded else _ASKED_FIELDS
    values = {f"extra_info.{name}": (recorded.get(name), now.get(name)) for name in names}
    if is_graded:
        values["ground_truth"] = record.get("ground_truth"), _entries(row, "reward_model").get("ground_truth")
    texts = {name: tuple(json.dumps(value, default=str) for value in pair) for name, pair in values.items()}
    return [f"{name} was {old:.80} and is now {new:.80}" for name, (old, new) in texts.items() if old != new]
