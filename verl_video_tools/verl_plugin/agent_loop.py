"""verl's agent loop for every method: an `Episode` (what happens) joined to its token sequences (what is trained on).

Selected per row by `agent_name` through the YAML file of `vvt path agent-loops`. A method's config comes from
`actor_rollout_ref.rollout.custom.video_tools.<method>`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.utils.tokenizer import get_processor_token_id

from verl_video_tools.core.errors import InvariantError, RowError, SetupError, UsageError
from verl_video_tools.core.reasoning import SpokenTurn, opens_reasoning, take_apart
from verl_video_tools.core.types import (
    FrameRecord,
    ImagePart,
    Message,
    Method,
    PixelEnvelope,
    Sample,
    StopReason,
    Trajectory,
)
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.sequences import rollout_tokens
from verl_video_tools.rollout.tokens import (
    RolloutTokens,
    TokenBudget,
    TokenCounter,
    TokenStream,
    check_invariants,
    processor_token_counts,
)
from verl_video_tools.verl_plugin import retrieval_actor
from verl_video_tools.verl_plugin.settings import (
    TOKEN_COUNTS,
    group_methods,
    is_validation,
    judge_config,
    method_from_config,
    pack_record,
    retrieval_config,
)
from verl_video_tools.video import envelope_of, fit_envelope

logger = logging.getLogger(__name__)

_TAIL_TOKENS = 8
"""Of a prompt, enough for the tag that its end may open, however it is tokenised."""


class VideoAgentLoop(AgentLoopBase):
    """One rollout: first look, then turns of generation and observation until the method ends it.

    Args:
        method: name of the method (from the YAML entry).
    """

    def __init__(self, *args: Any, method: str, tools: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.processor is None:
            raise SetupError(
                f"no multimodal processor could be loaded for {self.config.actor_rollout_ref.model.path}; "
                f"verl hides the reason: check that the folder loads with transformers.AutoProcessor"
            )
        self.run_method = method_from_config(method, self.rollout_config)
        self.judge = judge_config(self.config)  # the reward manager asks it; here it matters only that there is one
        found = retrieval_config(self.rollout_config)
        self.retriever = None if found is None else retrieval_actor.connect(found)
        self.envelope: PixelEnvelope = envelope_of(self.processor, self.mm_processor_kwargs)
        self.image_token_id = get_processor_token_id(self.processor, "image")
        self.end_of_turn_id = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
        # Models are served with several: Qwen's generation configs also name the one that ends a document.
        self.end_ids = {self.end_of_turn_id, self.tokenizer.eos_token_id, self.tokenizer.pad_token_id}
        kinds = (get_processor_token_id(self.processor, kind) for kind in ("image", "video"))
        self.placeholders = {id: self._decode([id]) for id in kinds if id is not None}

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Run one rollout. Failures of row, video, tool or invariant end up in the record; those of the inference
        engine are raised, since nothing can go on without it.

        Returns:
            The rollout's training sequence, or a list of several in order of turns.
        """
        timing = AgentLoopMetrics()
        server_fields: dict[str, Any] = {}
        try:
            sample = Sample.from_row(kwargs)
            self.run_method.check_sample(sample, self.judge)
        except (RowError, UsageError) as error:
            logger.error("%s", error)
            trajectory = Trajectory(method=self.run_method.name, question="")
            trajectory.stop_reason, trajectory.error, trajectory.flags = StopReason.ABORTED, str(error), ["row_error"]
            return self._outputs(trajectory, [await self._placeholder_stream()], timing, server_fields)

        session_id = int(kwargs.get("session_id") or 0)  # verl's older trainers give none: all take the first
        validate = is_validation(sampling_params, self.rollout_config)
        group = group_methods(self.run_method, self.rollout_config, validate)
        method = group[session_id % len(group)]
        builder = self.continuous_token_builder
        counter = TokenCounter(builder, self.image_token_id, self.envelope.factor)
        tokens = rollout_tokens(method.context_policy(), builder, counter, self.end_of_turn_id)
        budget = TokenBudget(
            tokens=tokens,
            prompt_length=self.rollout_config.prompt_length,
            response_length=self.rollout_config.response_length,
            max_images=self.rollout_config.get("limit_images"),
        )
        episode = Episode(method, sample, self.envelope, budget, self.retriever, group=group)
        episode.trajectory.settings = method.own_settings(self.run_method)
        trajectory, index = episode.trajectory, sample.extra_info.get("index")
        try:
            started = time.perf_counter()
            messages = await episode.start()
            timing.tool_calls += time.perf_counter() - started
            if messages is None:
                if trajectory.error:
                    logger.warning("rollout of row %s: %s", index, trajectory.error)
                return self._outputs(trajectory, [await self._placeholder_stream()], timing, server_fields)
            await asyncio.to_thread(tokens.start, messages)

            request_id = uuid4().hex
            while trajectory.stop_reason is None:
                # The template may open a reasoning; the turn's text is then without the tag that began it.
                opened = opens_reasoning(self._decode(tokens.current.ids[-_TAIL_TOKENS:]))
                turn_text, truncated = await self._generate(
                    method, tokens, budget, request_id, sampling_params, timing, server_fields
                )
                started = time.perf_counter()
                said = SpokenTurn(turn_text)
                if opened:
                    said = take_apart(turn_text, method, opened=True, cut=truncated)
                observation = await episode.step(said.text, truncated, said.reasoning)
                if observation is not None:
                    await asyncio.to_thread(tokens.append_observation, observation)
                timing.tool_calls += time.perf_counter() - started
            for stream in tokens.sequences:
                await asyncio.to_thread(self._check, stream)
        except InvariantError as error:
            logger.error("rollout of row %s broke an invariant: %s", index, error)
            trajectory.flags.append("invariant")
            trajectory.error, trajectory.stop_reason = str(error), trajectory.stop_reason or StopReason.ABORTED
            return self._outputs(trajectory, [await self._placeholder_stream()], timing, server_fields)
        return self._outputs(trajectory, tokens.sequences, timing, server_fields)

    def _check(self, stream: TokenStream) -> None:
        """Raises InvariantError for a sequence that must not be trained on."""
        counts = processor_token_counts(self.processor.image_processor, stream.images, self.mm_processor_kwargs)
        check_invariants(stream, self.image_token_id, counts)
        # verl decodes a finished rollout for its processor, which takes a spelling for a picture that is not there.
        text = self._decode([token for token in stream.ids if token not in self.placeholders])
        if spelt := [name for name in self.placeholders.values() if name in text]:
            raise InvariantError(f"the policy has written {', '.join(spelt)} letter by letter, not as a token")

    async def _generate(
        self,
        method: Method,
        tokens: RolloutTokens,
        budget: TokenBudget,
        request_id: str,
        sampling_params: Mapping[str, Any],
        timing: AgentLoopMetrics,
        server_fields: dict[str, Any],
    ) -> tuple[str, bool]:
        """Sample one turn; returns its text without the end-of-turn token, and whether it was cut by its limit."""
        max_tokens = max(1, min(budget.tokens_left(), method.max_turn_tokens or budget.tokens_left()))
        params = {**sampling_params, "max_tokens": max_tokens}
        if method.stop:
            params |= {"stop": list(method.stop), "include_stop_str_in_output": True}
        stream = tokens.current
        started = time.perf_counter()
        output = await self.server_manager.generate(
            request_id=request_id,
            prompt_ids=stream.ids,
            sampling_params=params,
            image_data=stream.pil_images,
            mm_processor_kwargs=dict(self.mm_processor_kwargs) or None,
        )
        timing.generate_sequences += time.perf_counter() - started
        token_ids = list(output.token_ids)
        # Not asked for any, the engine gives None, and verl an empty list where it has joined interrupted requests.
        logprobs = list(output.log_probs or ()) if self.rollout_config.calculate_log_probs else None
        if num_surplus := len(token_ids) - length_to_stop(token_ids, method.stop, self._decode):
            del token_ids[-num_surplus:]
            if logprobs is not None:
                del logprobs[-num_surplus:]
        stream.append_turn(token_ids, logprobs)
        _merge_server_fields(server_fields, output.extra_fields)
        ended = bool(token_ids) and token_ids[-1] in self.end_ids
        # vLLM reports "stop" and "length" alike through verl, so a cut is recognised by its length.
        text = self._decode(token_ids[:-1] if ended else token_ids)
        stopped = ended or any(string in text for string in method.stop)
        return text, not stopped and len(token_ids) >= max_tokens

    def _decode(self, token_ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(token_ids, skip_special_tokens=False)
        return text

    async def _placeholder_stream(self) -> TokenStream:
        """Prompt of a rollout that never reached the model: one blank picture.

        It takes a picture because verl 0.9.1 fails on a micro-batch without any ("'BaseModelOutputWithPooling' object
        has no attribute 'mean'"), and a video that cannot be read fails for its whole group.
        """
        width, height = fit_envelope(self.envelope.factor, self.envelope.factor, self.envelope)
        blank = ImagePart(FrameRecord(0, 0.0, width, height), np.zeros((height, width, 3), np.uint8))
        stream = TokenStream(self.continuous_token_builder)
        await asyncio.to_thread(stream.start, [Message("user", (blank,))])
        return stream

    def _outputs(
        self,
        trajectory: Trajectory,
        sequences: Sequence[TokenStream],
        timing: AgentLoopMetrics,
        server_fields: Mapping[str, Any],
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        """The rollout as verl takes it. The record goes with the last sequence: reward manager, validation and
        advantage look at no other, and verl hands reward and advantage on to the others."""
        outputs = [self._output(stream, len(trajectory.turns), timing, server_fields) for stream in sequences]
        outputs[-1].extra_fields |= pack_record(trajectory)
        return outputs if len(outputs) > 1 else outputs[0]

    def _output(
        self, stream: TokenStream, num_turns: int, timing: AgentLoopMetrics, server_fields: Mapping[str, Any]
    ) -> AgentLoopOutput:
        """One sequence. One without a response gets a single end-of-turn token with mask 0."""
        response_ids, mask, logprobs = stream.response_ids, stream.response_mask, stream.response_logprobs
        if not response_ids:  # also an engine may return no token, as for an aborted request; verl needs one
            response_ids, mask, logprobs = [self.end_of_turn_id], [0], [0.0]
        return AgentLoopOutput(
            prompt_ids=stream.prompt_ids,
            response_ids=response_ids,
            response_mask=mask,
            response_logprobs=logprobs if self.rollout_config.calculate_log_probs else None,
            multi_modal_data={"images": stream.pil_images},
            num_turns=2 * num_turns + 1,
            metrics=timing,
            extra_fields={
                # Policy versions are logged per rollout; one that never reached the server belongs to no version.
                "min_global_steps": server_fields.get("min_global_steps", -1),
                "max_global_steps": server_fields.get("max_global_steps", -1),
                **dict(zip(TOKEN_COUNTS, (sum(mask), mask.count(0)), strict=True)),
                "turn_scores": [],
                "tool_rewards": [],
            },
        )


def length_to_stop(token_ids: Sequence[int], stop: Sequence[str], decode: Callable[[Sequence[int]], str]) -> int:
    """Number of a turn's tokens up to the one that completes its first stop string; all of them if there is none.

    The engine ends a turn there by itself, but for one that was interrupted inside the string, as in asynchronous
    training: verl goes on with a new request, and vLLM looks for stop strings only in what a request generates itself.
    """

    def has_stopped(length: int) -> bool:
        text = decode(token_ids[:length])
        return any(string in text for string in stop)

    if not stop or not has_stopped(len(token_ids) - 1):
        return len(token_ids)
    return bisect_left(range(len(token_ids)), True, key=has_stopped)


def _merge_server_fields(fields: dict[str, Any], update: Mapping[str, Any]) -> None:
    """Keep the oldest and the newest policy version that generated a turn of this rollout."""
    version = update.get("global_steps")
    oldest, newest = update.get("min_global_steps", version), update.get("max_global_steps", version)
    if oldest is not None:
        fields["min_global_steps"] = min(oldest, fields.get("min_global_steps", oldest))
    if newest is not None:
        fields["max_global_steps"] = max(newest, fields.get("max_global_steps", newest))


if os.environ.get("VERL_LOGGING_LEVEL"):
    logger.setLevel(os.environ["VERL_LOGGING_LEVEL"])
