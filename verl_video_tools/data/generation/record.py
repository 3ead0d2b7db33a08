"""One rollout of a chat model, from its task to the line that records it."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from verl_video_tools.core.errors import JudgeError, RowError, UsageError
from verl_video_tools.core.grading import grade_answer
from verl_video_tools.core.method import method_of_rollout, rollout_overrides, zero_reward
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.core.types import (
    AnswerLabel,
    Judge,
    Method,
    Retriever,
    Sample,
    StopReason,
    ToolModel,
    Trajectory,
)
from verl_video_tools.data.generation.task import RolloutTask
from verl_video_tools.data.generation.templates import DialogueTemplate
from verl_video_tools.methods.breakdown import reward_info
from verl_video_tools.rollout.attempts import Attempts, attempted
from verl_video_tools.rollout.chat_policy import ChatPolicy, ChatRollout, Usage

logger = logging.getLogger(__name__)

Record = dict[str, Any]
"""A line of the file, as `records.records` describes it; without tokens and advantage, which only training has.

`answer_label` says how the answer compares with the truth, where that was asked for and the rollout is not flagged.
`usage` is what the endpoint's replies cost (`chat_policy.Usage`), `seconds` what the rollout took, waiting included.
`versions` are those of the packages that made it, where these were given.
"""


@dataclass
class _Made:
    """What is known of a rollout; a failure leaves the rest of it as it was.

    Attributes:
        method: with the rollout's own settings, once these are read.
    """

    method: Method
    rollout: ChatRollout
    reward: dict[str, float]
    sample: Sample | None = None
    attempts: Attempts | None = None
    label: AnswerLabel | None = None
    seconds: float = 0.0

    @property
    def trajectory(self) -> Trajectory:
        return self.rollout.trajectory

    def abort(self, flag: str, error: str) -> None:
        self.trajectory.stop_reason, self.trajectory.error = StopReason.ABORTED, error
        self.trajectory.flags.append(flag)


@dataclass(frozen=True, kw_only=True)
class RolloutMaker:
    """Makes and scores rollouts; the fields are arguments of `generation.generate.generate`."""

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
        nothing = ChatRollout(Trajectory(method=self.method.name, question=""), 0)
        made = _Made(self.method, nothing, zero_reward(self.method))
        try:
            await self._roll_out(task, made)
            if not made.trajectory.flags:
                await self._score(task, made)
        except JudgeError as error:
            made.trajectory.flags.append(JUDGE_FLAG)
            made.trajectory.error = str(error)
        except (RowError, UsageError) as error:
            logger.error("rollout %s of row %s: %s", task.session_id, task.uid, error)
            made.abort("row_error", str(error))
        except Exception as error:
            logger.exception("rollout %s of row %s", task.session_id, task.uid)
            made.abort("exception", repr(error))
        return self._record(task, made)

    async def _roll_out(self, task: RolloutTask, made: _Made) -> None:
        made.method = method = method_of_rollout(self.method, task.settings)
        made.sample = sample = Sample.from_row(task.row)
        if task.is_graded:
            method.check_sample(sample, self.judge)
        began = time.perf_counter()
        rollouts: list[ChatRollout] = []
        instructions = (self.instruction, None if task.template is None else task.template.instruction)

        async def attempt(own: Method, number: int) -> Trajectory:
            rollout = await self.chat.rollout(
                own,
                sample,
                given_turns=task.given_turns,
                given_initial_frames=task.given_initial_frames,
                instruction="\n\n".join(text for text in instructions if text) or None,
                seed=self._seed_of(task, number),
                retriever=self.retriever,
                tool_model=self.tool_model,
            )
            rollouts.append(rollout)
            return rollout.trajectory

        made.attempts = await attempted(method, attempt, self.max_attempts)
        made.rollout = ChatRollout(
            made.attempts.trajectory,
            sum(rollout.num_generated_tokens for rollout in rollouts),
            sum((rollout.usage for rollout in rollouts), Usage()),
        )
        made.seconds = time.perf_counter() - began

    async def _score(self, task: RolloutTask, made: _Made) -> None:
        assert made.sample is not None  # the rollout was of it
        if task.is_graded:
            judge = None if self.judge is None else _AskedOnce(self.judge)
            if self.label_answers:
                made.label = await grade_answer(made.trajectory.answer, made.sample, judge)
            made.reward = await made.method.score(made.trajectory, made.sample, judge)

    def _seed_of(self, task: RolloutTask, attempt: int) -> int | None:
        """Apart for each rollout, with room for its turns."""
        if self.seed is None:
            return None
        again = "" if attempt == 1 else f"/{attempt}"
        return random.Random(f"{self.seed}/{task.uid}/{task.session_id}{again}").getrandbits(30)

    def _record(self, task: RolloutTask, made: _Made) -> Record:
        overrides = {} if made.attempts is None else rollout_overrides(made.attempts.method, made.method)
        made.trajectory.settings = {**task.settings, **overrides}
        return {
            "step": 0,
            "uid": task.uid,
            "session_id": task.session_id,
            "agent_name": made.method.name,
            "data_source": task.row.get("data_source"),
            "ground_truth": task.entries("reward_model").get("ground_truth"),
            "extra_info": task.entries("extra_info"),
            "model": self.chat.config.model,
            "first_trained_turn": len(task.given_turns),
            "reward": reward_info(made.method, made.reward, made.sample, bool(made.trajectory.flags)),
            "answer_label": made.label,
            "num_generated_tokens": made.rollout.num_generated_tokens,
            "usage": asdict(made.rollout.usage),
            "seconds": round(made.seconds, 3),
            **({} if self.versions is None else {"versions": self.versions}),
            **_form_of(task.template, made.trajectory),
            **({} if made.attempts is None or self.max_attempts == 1 else _told_of(made.attempts)),
            "trajectory": made.trajectory,
        }


def _told_of(attempts: Attempts) -> Record:
    """What became of each attempt at a question, and the number of the one taken, if any."""
    return {"attempts": [attempt.summary() for attempt in attempts.made], "attempt_taken": attempts.taken}


def _form_of(template: DialogueTemplate | None, trajectory: Trajectory) -> Record:
    """The form that a dialogue was to take, and how it departs from that; a failed one does not count as departing."""
    if template is None:
        return {}
    fault = None if trajectory.flags else template.fault(trajectory)
    return {"template": template.name, "template_fault": fault}


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
