"""Rollouts of a chat model behind an endpoint, scored and recorded one JSON line each: `vvt data generate`, `vvt eval`.

A file of records grows by whole lines and is never rewritten, so that a run which was killed goes on where it stopped.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from verl_video_tools.core.errors import JudgeError, RowError, UsageError
from verl_video_tools.core.machine import page
from verl_video_tools.core.method import method_of_rollout, rollout_overrides, zero_reward
from verl_video_tools.core.prompts import read_prompt
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.core.types import AnswerLabel, Judge, Method, Retriever, Sample, StopReason, ToolModel, Trajectory
from verl_video_tools.data.append import append_record, appended, no_progress, work_through
from verl_video_tools.data.dialogue_templates import DialogueTemplate, draw_templates
from verl_video_tools.data.parquet import read_table
from verl_video_tools.data.protocol import generation_settings, record_protocol
from verl_video_tools.grading.answers import grade_answer
from verl_video_tools.methods.breakdown import reward_info
from verl_video_tools.records.records import read_records
from verl_video_tools.rollout.chat_policy import ChatPolicy, PolicyConfig, Usage
from verl_video_tools.services.judge import JudgeConfig, LLMJudge
from verl_video_tools.services.tool_model import EndpointToolModel, ToolModelConfig

logger = logging.getLogger(__name__)

Key = tuple[str, int]
"""What a rollout is known by in its file: `uid` and `session_id`."""

Record = dict[str, Any]
"""A line of the file, as `records.records` describes it; without tokens and advantage, which only training has.

`answer_label` says how the answer compares with the truth, where that was asked for and the rollout is not flagged.
`usage` is what the endpoint's replies cost (`chat_policy.Usage`), `seconds` what the rollout took, waiting included.
`versions` are those of the packages that made it, where these were given.
"""

Progress = Callable[[int, int, str], None]
"""Is called with the numbers of rollouts done and of all rollouts, and `GenerationSummary.progress_note`."""

_QUESTION_FIELDS = ("video_path", "video_paths", "image_paths", "question", "subtitles")
_GRADING_FIELDS = ("question_type", "options", "video_segment", "classification")
"""Of `extra_info`: what a rollout was asked, and what its reward and its label depend on beside the truth."""


# --------------------------------------------------------------------------------------------------------------- tasks


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
        settings: fields of the method that are this rollout's own, kept in its record.
        template: form that the dialogue is to take; recorded with how the dialogue departs from it.
    """

    uid: str
    session_id: int
    row: Mapping[str, Any]
    given_turns: tuple[str, ...] = ()
    given_initial_frames: tuple[int, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    template: DialogueTemplate | None = None

    @property
    def key(self) -> Key:
        return self.uid, self.session_id

    def entries(self, column: str) -> Mapping[str, Any]:
        """A column of named entries; none where it holds something else, for which the rollout is flagged."""
        value = self.row.get(column)
        return value if isinstance(value, Mapping) else {}


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
    questions = [str(task.entries("extra_info").get("question", "")) for task in tasks]
    forms = draw_templates(templates, questions, seed or 0)
    return [replace(task, template=form) for task, form in zip(tasks, forms, strict=True)]


def tasks_of_failures(records: str | Path, num_samples: int) -> tuple[str, list[RolloutTask]]:
    """So many corrections of each recorded rollout that executed a tool call and still answered wrong, or not at all
    (VideoZoomer, paper 3.2).

    A correction starts with the failed rollout's turns but the last, so the expert does not read the wrong answer.
    Flagged rollouts are left out, and so are those that executed no call before their last turn. What a rollout had of
    its own (FrameMind's rung) and its initial frames are the correction's, too: its turns refer to those frames.

    Args:
        records: a file of records, or the folder of a training run.

    Returns:
        The method of the rollouts, and the tasks.

    Raises:
        UsageError: there is no such rollout, or rollouts are of several methods.
    """
    tasks: list[RolloutTask] = []
    methods: set[str] = set()
    for line in read_records(Path(records), must_exist=True):
        trajectory: Trajectory = line["trajectory"]
        beginning = trajectory.turns[:-1]
        has_called = any(call.ok for turn in beginning for call in turn.calls)
        if trajectory.flags or line["reward"]["acc"] > 0 or not has_called:
            continue
        methods.add(trajectory.method)
        row = {
            "data_source": line["data_source"],
            "reward_model": {"ground_truth": line["ground_truth"]},
            "extra_info": line["extra_info"],
        }
        uid = f"{line['step']}/{line['uid']}/{line['session_id']}"
        turns, frames = tuple(turn.text for turn in beginning), tuple(trajectory.initial_frame_indices())
        tasks += [RolloutTask(uid, sample, row, turns, frames, trajectory.settings) for sample in range(num_samples)]
    if not tasks:
        raise UsageError(f"{records}: no wrong rollout with an executed call to reflect on")
    if len(methods) > 1:
        raise UsageError(f"{records} holds rollouts of {', '.join(sorted(methods))}; give those of one method")
    return methods.pop(), tasks


def reflection_prompt() -> str:
    """The expert's instruction beside the method's own prompt."""
    return read_prompt(__package__, "reflection_prompt.txt", None)


# ------------------------------------------------------------------------------------------------------- whole files


class _Outcome(NamedTuple):
    """What is counted of a rollout."""

    acc: float
    num_calls: int
    stop_reason: str
    flag: str | None
    template: str | None
    follows_template: bool


@dataclass
class GenerationSummary:
    """What a file of records holds; of a rollout that was made again the last record counts."""

    num_flagged: int = field(default=0, init=False)
    _num_correct: float = field(default=0.0, init=False)
    _outcomes: dict[Key, _Outcome] = field(default_factory=dict, init=False)

    def add(self, record: Mapping[str, Any]) -> None:
        trajectory: Trajectory = record["trajectory"]
        key = str(record["uid"]), int(record["session_id"])
        self._count(self._outcomes.get(key), -1)
        self._outcomes[key] = _Outcome(
            float(record["reward"]["acc"]),
            len(trajectory.executed_calls()),
            str(trajectory.stop_reason),
            next(iter(trajectory.flags), None),
            record.get("template"),
            record.get("template_fault") is None and not trajectory.flags,
        )
        self._count(self._outcomes[key], 1)

    def _count(self, outcome: _Outcome | None, times: int) -> None:
        """Progress asks for the sums after every rollout, so that they are kept up to date."""
        if outcome is not None and outcome.flag is None:
            self._num_correct += times * outcome.acc
        elif outcome is not None:
            self.num_flagged += times

    def __len__(self) -> int:
        return len(self._outcomes)

    @property
    def accuracy(self) -> float:
        """Share of right answers among the rollouts that are not flagged; 0.0 where there is none."""
        return self._num_correct / max(1, len(self) - self.num_flagged)

    @property
    def progress_note(self) -> str:
        """`accuracy 0.617, 2 flagged`, each part where there is one."""
        accuracy = [f"accuracy {self.accuracy:.3f}"] if self.num_flagged < len(self) else []
        return ", ".join([*accuracy, *([f"{self.num_flagged} flagged"] if self.num_flagged else [])])

    def __str__(self) -> str:
        outcomes = self._outcomes.values()
        good = [outcome for outcome in outcomes if outcome.flag is None]
        ends = Counter(outcome.stop_reason for outcome in good)
        failures = Counter(outcome.flag for outcome in outcomes if outcome.flag is not None)
        text = (
            f"{len(self)} rollouts, accuracy {self.accuracy:.3f}, "
            f"{sum(outcome.num_calls for outcome in good) / max(1, len(good)):.2f} executed calls per rollout; "
            f"ended by {_listed(ends)}; failures {_listed(failures)}"
        )
        totals = Counter(outcome.template for outcome in outcomes if outcome.template is not None)
        follow = Counter(outcome.template for outcome in outcomes if outcome.follows_template)
        counts = ", ".join(f"{name}: {follow[name]} of {totals[name]}" for name in sorted(totals))
        return f"{text}; templates followed {counts}" if counts else text


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.most_common()) or "none"


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
    progress: Progress = no_progress,
) -> GenerationSummary:
    """Make the rollouts that `out` does not hold yet, and append each to it as soon as it is scored.

    A rollout that fails (row, video, endpoint, judge) is recorded as flagged, and the others go on.

    Args:
        policy: without a model's name, the first that the endpoint lists.
        server: gives the policy's `base_url`; entered only where a rollout is left to make.
        judge: for open questions.
        instruction: appended to the method's system prompt.
        seed: gives each rollout a seed of its own, the same in every run; None leaves sampling to the endpoint.
        retriever: for methods that find frames by text.
        tool_model: for methods whose tools ask a model.
        retry_flagged: make those again that are recorded as flagged.
        label_answers: also record how each answer compares with the truth (`AnswerLabel`). A reward does not say so: it
            may be withheld from a right answer for its form or its consistency.
        max_attempts: of each rollout, where the method evaluates so (`attempted`); its record is that of the attempt
            taken, and summarises the others.
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
            way are not; or a model that is not named cannot be asked for its name.
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
        if isinstance(judge, JudgeConfig):
            judge = await stack.enter_async_context(LLMJudge(judge))
        file = stack.enter_context(appended(Path(out)))
        summary, done, models = _resumed(Path(out), tasks, method, retry_flagged)
        if protocol is not None:
            record_protocol(
                Path(f"{out}.protocol.json"),
                protocol,
                has_rollouts=bool(models),
                otherwise=f"{out} holds rollouts that were made otherwise",
                advice="Give the same options, or another file to write",
            )
        left = [task for task in tasks if task.key not in done]

        def tell(num_done: int, num_tasks: int) -> None:
            progress(num_done, num_tasks, summary.progress_note)

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
            judge=judge,
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
        if sample.question_type == "open":
            method.check_sample(sample, None)


def _resumed(
    path: Path, tasks: Sequence[RolloutTask], method: Method, retry_flagged: bool
) -> tuple[GenerationSummary, set[Key], set[str]]:
    """What the file holds, which of its rollouts need not be made again, and whose these are."""
    models = set[str]()
    task_of_key = {task.key: task for task in tasks}
    summary, done = GenerationSummary(), set[Key]()
    for record in read_records(path):
        key = str(record["uid"]), int(record["session_id"])
        is_left = retry_flagged and bool(record["trajectory"].flags)
        if key in task_of_key and (changes := _changes(record, task_of_key[key], is_graded=not is_left)):
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
    names = (*_QUESTION_FIELDS, *_GRADING_FIELDS) if is_graded else _QUESTION_FIELDS
    values = {f"extra_info.{name}": (recorded.get(name), now.get(name)) for name in names}
    if is_graded:
        values["ground_truth"] = record.get("ground_truth"), task.entries("reward_model").get("ground_truth")
    given_turns = [turn.text for turn in record["trajectory"].turns[: len(task.given_turns)]]
    values["given turns"] = given_turns, [*task.given_turns][: len(given_turns)]
    texts = {name: tuple(json.dumps(value, default=str) for value in pair) for name, pair in values.items()}
    return [f"{name} was {old:.80} and is now {new:.80}" for name, (old, new) in texts.items() if old != new]


# ------------------------------------------------------------------------------------------------------ one rollout


@dataclass(frozen=True)
class Attempt:
    """One rollout of a question.

    Attributes:
        method: that it was made with.
        fault: why it does not count, and another one is made if any is left; None where it counts, or was lost.
    """

    method: Method
    trajectory: Trajectory
    fault: str | None

    def summary(self) -> dict[str, Any]:
        """What a record holds of it."""
        reason = self.trajectory.stop_reason
        ended = {"stop_reason": None if reason is None else str(reason), "answer": self.trajectory.answer}
        return {**ended, **self.trajectory.counts(), "fault": self.fault}


async def attempted(
    method: Method, run: Callable[[Method, int], Awaitable[Trajectory]], max_attempts: int
) -> list[Attempt]:
    """Attempts at one question until one counts (`Method.attempt`, `Method.attempt_fault`): the last, if it has no
    fault.

    A rollout that is flagged (video, endpoint) says nothing of the model, so that no other follows it.

    Args:
        run: makes one whole rollout with the method that it gets; the number counts from 1.
        max_attempts: rollouts at most.

    Raises:
        UsageError: the method knows of one attempt only.
    """
    attempts: list[Attempt] = []
    for number in range(1, max_attempts + 1):
        variant = method if max_attempts == 1 else method.attempt(number, max_attempts)
        trajectory = await run(variant, number)
        is_final = max_attempts == 1 or bool(trajectory.flags) or trajectory.is_lost()
        attempts.append(Attempt(variant, trajectory, None if is_final else variant.attempt_fault(trajectory)))
        if attempts[-1].fault is None:
            break
    return attempts


@dataclass
class _Rollout:
    """What is known of a rollout; a failure leaves the rest of it as it was."""

    method: Method
    trajectory: Trajectory
    reward: dict[str, float]
    sample: Sample | None = None
    attempts: Sequence[Attempt] = ()
    label: AnswerLabel | None = None
    usage: Usage = field(default_factory=Usage)
    num_generated_tokens: int = 0
    seconds: float = 0.0

    def abort(self, flag: str, error: str) -> None:
        self.trajectory.stop_reason, self.trajectory.error = StopReason.ABORTED, error
        self.trajectory.flags.append(flag)


@dataclass(frozen=True, kw_only=True)
class RolloutMaker:
    """Makes and scores rollouts; the fields are arguments of `generate`."""

    method: Method
    chat: ChatPolicy
    judge: Judge | None
    instruction: str | None
    seed: int | None
    retriever: Retriever | None
    tool_model: ToolModel | None
    label_answers: bool
    max_attempts: int
    versions: Mapping[str, str | None] | None

    async def make(self, task: RolloutTask) -> Record:
        """The record of the task's rollout, its `trajectory` as an object; a failure is a flag and an error in it."""
        empty = Trajectory(method=self.method.name, question="")
        rollout = _Rollout(self.method, empty, zero_reward(self.method))
        try:
            await self._roll_out(task, rollout)
            if not rollout.trajectory.flags:
                await self._score(rollout)
        except JudgeError as error:
            rollout.trajectory.flags.append(JUDGE_FLAG)
            rollout.trajectory.error = str(error)
        except (RowError, UsageError) as error:
            logger.error("rollout %s of row %s: %s", task.session_id, task.uid, error)
            rollout.abort("row_error", str(error))
        except Exception as error:
            logger.exception("rollout %s of row %s", task.session_id, task.uid)
            rollout.abort("exception", repr(error))
        return self._record(task, rollout)

    async def _roll_out(self, task: RolloutTask, rollout: _Rollout) -> None:
        rollout.method = method = method_of_rollout(self.method, task.settings)
        rollout.sample = sample = Sample.from_row(task.row)
        method.check_sample(sample, self.judge)
        began = time.perf_counter()
        instructions = (self.instruction, None if task.template is None else task.template.instruction)

        async def attempt(variant: Method, number: int) -> Trajectory:
            made = await self.chat.rollout(
                variant,
                sample,
                prefix_turns=task.given_turns,
                prefix_initial_frames=task.given_initial_frames,
                instruction="\n\n".join(text for text in instructions if text) or None,
                seed=self._seed_of(task, number),
                retriever=self.retriever,
                tool_model=self.tool_model,
            )
            rollout.usage += made.usage
            rollout.num_generated_tokens += made.num_generated_tokens
            return made.trajectory

        rollout.attempts = await attempted(method, attempt, self.max_attempts)
        last = rollout.attempts[-1]
        rollout.trajectory = last.trajectory if last.fault is None else replace(last.trajectory, answer=None)
        rollout.seconds = time.perf_counter() - began

    async def _score(self, rollout: _Rollout) -> None:
        assert rollout.sample is not None  # the rollout was of it
        judge = None if self.judge is None else _CachedJudge(self.judge)
        if self.label_answers:
            rollout.label = await grade_answer(rollout.trajectory.answer, rollout.sample, judge, judge_unread=True)
        rollout.reward = await rollout.method.score(rollout.trajectory, rollout.sample, judge)

    def _seed_of(self, task: RolloutTask, attempt: int) -> int | None:
        """Apart for each rollout, with room for its turns."""
        if self.seed is None:
            return None
        again = "" if attempt == 1 else f"/{attempt}"
        return random.Random(f"{self.seed}/{task.uid}/{task.session_id}{again}").getrandbits(30)

    def _record(self, task: RolloutTask, rollout: _Rollout) -> Record:
        attempts, trajectory = rollout.attempts, rollout.trajectory
        overrides = rollout_overrides(attempts[-1].method, rollout.method) if attempts else {}
        trajectory.settings = {**task.settings, **overrides}
        record: Record = {
            "step": 0,
            "uid": task.uid,
            "session_id": task.session_id,
            "agent_name": rollout.method.name,
            "data_source": task.row.get("data_source"),
            "ground_truth": task.entries("reward_model").get("ground_truth"),
            "extra_info": task.entries("extra_info"),
            "model": self.chat.config.model,
            "turn_weights": [float(number >= len(task.given_turns)) for number in range(len(trajectory.turns))],
            "reward": reward_info(rollout.method, rollout.reward, rollout.sample, bool(trajectory.flags)),
            "answer_label": rollout.label,
            "num_generated_tokens": rollout.num_generated_tokens,
            "usage": asdict(rollout.usage),
            "seconds": round(rollout.seconds, 3),
        }
        if self.versions is not None:
            record["versions"] = self.versions
        if task.template is not None:  # a dialogue that failed does not count as departing from its form
            record["template"] = task.template.name
            record["template_fault"] = None if trajectory.flags else task.template.fault(trajectory)
        if attempts and self.max_attempts > 1:
            record["attempts"] = [attempt.summary() for attempt in attempts]
            record["attempt_taken"] = len(attempts) if attempts[-1].fault is None else None
        return {**record, "trajectory": trajectory}


@dataclass
class _CachedJudge:
    """Caches verdicts: reward and label need the same one."""

    inner: Judge
    labels: dict[tuple[str, str, str], AnswerLabel] = field(default_factory=dict)

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        key = question, truth, answer
        if key not in self.labels:
            self.labels[key] = await self.inner.judge(*key)
        return self.labels[key]
