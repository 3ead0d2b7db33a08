"""A method's real loop, tools and reward under a scripted policy: no model, no GPU.

Without a processor, frames have the sizes that the method asks for, and no token budget applies. With one, sizes are
those that the processor leaves untouched, and the method's recipe budgets apply to the scripted turns as they would to
generated ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import (
    Message,
    Method,
    PixelEnvelope,
    QuestionType,
    Retriever,
    Sample,
    ToolModel,
    Trajectory,
)
from verl_video_tools.methods import get_method
from verl_video_tools.records.view import write_rollout
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import AssistantTurn, Policy, ScriptedPolicy
from verl_video_tools.rollout.tokens import RolloutTokens, TokenBudget
from verl_video_tools.services.judge import JudgeConfig, LLMJudge
from verl_video_tools.services.tool_model import EndpointToolModel, ToolModelConfig
from verl_video_tools.verl_plugin.model_tokens import load_model_tokens

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_CALL_FIELDS = ("name", "arguments", "ok", "error", "frames", "text", "model_calls", "pictures")
"""`text` only of calls that answered in words, `model_calls` only of those whose tool asked a model, `pictures` only of
those whose tool made some."""


async def areplay(
    method: str,
    video: str | None,
    question: str,
    answer: str,
    turns: Sequence[str],
    extra: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    processor: str | None = None,
    judge: JudgeConfig | None = None,
    retriever: Retriever | None = None,
    html: Path | None = None,
    tool_model: ToolModelConfig | ToolModel | None = None,
) -> dict[str, Any]:
    """Run `turns` as the assistant's turns of one rollout, and score the rollout.

    Args:
        method: name of the method, as for `get_method`.
        video: path of the video file. A file that cannot be read gives `stop_reason` "video_error", an `error` and no
            reward. None: the row has images (`extra["image_paths"]`), or neither (`extra["visuals"]` is "none").
        question: the whole text that the model would read, options included.
        answer: the ground truth.
        turns: assistant texts in order. Texts that remain when the rollout ends are ignored.
        extra: further fields of the row's `extra_info` (`question_type`, `options`, ...).
        settings: fields of the method's config that differ from their defaults.
        processor: folder or name of a Hugging Face processor, whose sizes and the recipe's token budgets then apply.
        judge: for questions that need one.
        retriever: for methods that search frames by text, such as `services.retrieval.local`. Without it such a call
            fails (`retrieval_error`).
        html: file in which to draw the rollout, as `vvt view` draws recorded ones.
        tool_model: for tools that ask a model: an endpoint, or a substitute such as
            `services.tool_model.ScriptedToolModel`. Without it such a call fails (`model_error`).

    Returns:
        The JSON-able dict that `vvt replay` prints: `method`, `video` (None if it cannot be read), `initial_frames`,
        `turns`, `stop_reason`, `answer`, `error` (why the rollout was lost, for example by an unreadable video;
        otherwise None), `reward`, `counts`. For a method that compares a group also `not_scored`: the components that
        depend on the group, which are 0 in `reward`.

    Raises:
        UsageError: an unknown method or setting, a row that contradicts itself, a question that needs a judge, or a
            page that cannot be written.
        JudgeError: the judge gave no verdict.
    """
    if isinstance(turns, str) or not all(isinstance(turn, str) for turn in turns):
        raise UsageError(f"turns must be a list of assistant texts, got {turns!r:.200}")
    configured = get_method(method, **(settings or {}))
    sample = _sample(video, question, answer, extra or {})
    policy: Policy = ScriptedPolicy(turns)
    envelope, budget = PixelEnvelope(), None
    if processor is not None:
        policy = tokenized = _TokenizedScript(turns, processor, configured)
        envelope, budget = tokenized.envelope, tokenized.budget
    async with AsyncExitStack() as stack:
        judging = None if judge is None else await stack.enter_async_context(LLMJudge(judge))
        if isinstance(tool_model, ToolModelConfig):
            tool_model = await stack.enter_async_context(EndpointToolModel(tool_model))
        episode = Episode(configured, sample, envelope, budget, retriever, tool_model=tool_model)
        trajectory = await episode.run(policy)
        reward = await configured.score(trajectory, sample, judging)
    if html is not None:
        await asyncio.to_thread(_draw, trajectory, sample, reward, configured, html)
    return _as_result(trajectory, reward, configured)


def _in_an_event_loop(function: Callable[Arguments, Coroutine[Any, Any, Result]]) -> Callable[Arguments, Result]:
    @wraps(function)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return asyncio.run(function(*arguments, **options))

    return run


replay = _in_an_event_loop(areplay)
"""`areplay` for programs without an event loop; takes the same arguments."""


def _sample(video: str | None, question: str, answer: str, extra: Mapping[str, Any]) -> Sample:
    extra_info = {"question": question, **({} if video is None else {"video_path": video}), **extra}
    try:
        sample = Sample.from_row({"extra_info": extra_info, "reward_model": {"ground_truth": answer}})
    except (RowError, TypeError, ValueError, IndexError) as error:
        raise UsageError(f"the row does not make sense: {error}; got extra_info {extra_info!r:.300}") from error
    if sample.question_type not in get_args(QuestionType):
        raise UsageError(f"question_type must be one of {get_args(QuestionType)}, got {sample.question_type!r}")
    return sample


def _draw(trajectory: Trajectory, sample: Sample, reward: Mapping[str, float], configured: Method, out: Path) -> None:
    line = {
        "trajectory": trajectory,
        "reward": reward,
        "not_scored": list(configured.group_components),
        "ground_truth": sample.ground_truth,
        "extra_info": dict(sample.extra_info),
    }
    write_rollout(line, out, title=f"{trajectory.method}: replay")


def _as_result(trajectory: Trajectory, reward: dict[str, float], configured: Method) -> dict[str, Any]:
    record = trajectory.to_dict()
    return {
        "method": trajectory.method,
        "video": record["video"],
        "initial_frames": record["initial_frames"],
        "turns": [
            {
                "text": turn["text"],
                "calls": [{name: call[name] for name in _CALL_FIELDS if name in call} for call in turn["calls"]],
                "observation": turn["observation"],
            }
            for turn in record["turns"]
        ],
        "stop_reason": str(trajectory.stop_reason),
        "answer": trajectory.answer,
        "error": trajectory.error,
        "reward": reward,
        **({"not_scored": list(configured.group_components)} if configured.group_components else {}),
        "counts": trajectory.counts(),
    }


class _TokenizedScript:
    """A script as a model under the recipe's limits could have written it, by the same token builder and budget."""

    def __init__(self, turns: Sequence[str], processor_path: str, method: Method) -> None:
        model = load_model_tokens(processor_path)
        self.envelope: PixelEnvelope = model.envelope
        self._tokenizer = model.tokenizer
        self._end_of_turn_id = model.end_of_turn_id
        self._turns = iter(turns)
        self._max_turn_tokens = method.max_turn_tokens
        self._tokens = RolloutTokens(model.counter, self._end_of_turn_id, method.context_policy())
        self.budget = TokenBudget(
            tokens=self._tokens,
            prompt_length=method.recipe_budget.prompt_tokens,
            response_length=method.recipe_budget.response_tokens,
            max_images=method.recipe_budget.images,
        )

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn | None:
        self._tokens.append(messages)
        text = next(self._turns, None)
        if text is None:
            return None
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        tokens_left = max(1, self.budget.tokens_left())
        max_tokens = min(tokens_left, self._max_turn_tokens or tokens_left)
        truncated = len(ids) + 1 > max_tokens  # one for the end of the turn
        ids = ids[:max_tokens] if truncated else [*ids, self._end_of_turn_id]
        self._tokens.current.append_turn(ids, None)
        turn = AssistantTurn(self._tokenizer.decode(ids) if truncated else text, truncated)
        self._tokens.end_turn(turn.text)
        return turn

    async def detached(self, messages: Sequence[Message]) -> AssistantTurn | None:
        text = next(self._turns, None) if self.budget.tokens_detached(messages) else None
        return None if text is None else AssistantTurn(text)
