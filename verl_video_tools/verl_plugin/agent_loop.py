"""verl's agent loop for every method: an `Episode` (what happens) with a `TokenPolicy` (what is trained on).

Selected per row by `agent_name` through the YAML file of `vvt path agent-loops`. A method's config comes from
`video_tools.<method>`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from verl_video_tools.core.errors import InvariantError, RowError, SetupError, UsageError
from verl_video_tools.core.method import rollout_overrides
from verl_video_tools.core.types import (
    FrameRecord,
    ImagePart,
    Message,
    Method,
    Sample,
    StopReason,
    Trajectory,
)
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.token_policy import TokenPolicy
from verl_video_tools.rollout.tokens import (
    RolloutTokens,
    TokenBudget,
    TokenStream,
    pil_images,
)
from verl_video_tools.services.tool_model import connected
from verl_video_tools.verl_plugin import retrieval_actor
from verl_video_tools.verl_plugin.agent_loop_worker import (
    IMAGE_PARTS,
    register_group_scoring,
    running_group,
    takes_image_parts,
)
from verl_video_tools.verl_plugin.group_router import RequestId, finish_rollout
from verl_video_tools.verl_plugin.images import ImageSender, takes_image_references
from verl_video_tools.verl_plugin.model_tokens import RunModel
from verl_video_tools.verl_plugin.settings import (
    CACHED_TOKENS,
    NO_VERSION,
    SAMPLED_TOKENS,
    TOKEN_COUNTS,
    TURN_CREDIT,
    check_media,
    group_methods,
    is_validation,
    judge_config,
    max_images,
    method_from_config,
    pack_record,
    retrieval_config,
    tool_model_config,
)
from verl_video_tools.video import fit_envelope

logger = logging.getLogger(__name__)

_ALL_ROWS = 1 << 20
"""Questions of a validation that has no batch size: more than there are inference servers."""


class VideoAgentLoop(AgentLoopBase):
    """One rollout: initial frames, then turns of generation and observation until the method ends it.

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
        retrieval_cfg = retrieval_config(self.rollout_config)
        self.retriever = None if retrieval_cfg is None else retrieval_actor.connect(retrieval_cfg)
        tool_model_cfg = tool_model_config(self.rollout_config)
        self.tool_model = None if tool_model_cfg is None else connected(tool_model_cfg)
        self.model = RunModel.of(self.continuous_token_builder, self.processor, self.mm_processor_kwargs)
        self.end_of_turn_id = self.model.end_of_turn_id
        # Models are served with several: Qwen's generation configs also name the one that ends a document.
        self.end_ids = frozenset({self.end_of_turn_id, self.tokenizer.eos_token_id, self.tokenizer.pad_token_id})
        kinds = (self.model.image_token_id, self.model.video_token_id)
        self.placeholders = {id: self._decode([id]) for id in kinds if id is not None}

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Run one rollout. Failures of row, video, tool or invariant end up in the record; those of the inference
        engine are raised, since nothing can go on without it.

        Returns:
            The rollout's training sequence, or a list of several in order of turns.
        """
        timing = AgentLoopMetrics()
        try:
            sample = Sample.from_row(kwargs)
            check_media(self.run_method, sample)
            self.run_method.check_sample(sample, self.judge)
        except (RowError, UsageError) as error:
            logger.error("%s", error)
            trajectory = Trajectory(method=self.run_method.name, question="")
            trajectory.stop_reason, trajectory.error, trajectory.flags = StopReason.ABORTED, str(error), ["row_error"]
            return self._outputs(trajectory, self.run_method, [await self._placeholder_stream()], timing, {})

        uid = str(kwargs.get("uid") or uuid4().hex)
        session_id = int(kwargs.get("session_id") or 0)  # verl's older trainers give none: all take the first
        running = running_group()
        validate = is_validation(sampling_params, self.rollout_config) if running is None else running.validates
        group = group_methods(self.run_method, self.rollout_config, validate)
        method = group[session_id % len(group)]
        register_group_scoring(self.run_method, sample, validate)
        batch_size = self.data_config.get("val_batch_size" if validate else "train_batch_size") or _ALL_ROWS
        request_id = str(RequestId.of(uid, session_id, len(group), batch_size))
        tokens = RolloutTokens(self.model.counter, self.end_of_turn_id, method.context_policy())
        budget = TokenBudget(
            tokens=tokens,
            prompt_length=self.rollout_config.prompt_length,
            response_length=self.rollout_config.response_length,
            max_images=max_images(self.rollout_config),
        )
        policy = TokenPolicy(
            method,
            self.server_manager,
            tokens,
            budget,
            self._decode,
            request_id,
            self._image_sender(uid),
            sampling_params,
            self.mm_processor_kwargs,
            self.end_ids,
            with_logprobs=self.rollout_config.calculate_log_probs,
        )
        episode = Episode(method, sample, self.model.envelope, budget, self.retriever, group, self.tool_model)
        trajectory, index = episode.trajectory, sample.extra_info.get("index")
        trajectory.settings = rollout_overrides(method, self.run_method)
        sequences: Sequence[TokenStream] = ()
        try:
            await _run_timed(episode, policy, timing)
            if tokens.current.prompt_ids:
                for stream in tokens.sequences:
                    await asyncio.to_thread(self._check, stream, validate)
                sequences = tokens.sequences
            elif trajectory.error:
                logger.warning("rollout of row %s: %s", index, trajectory.error)
        except InvariantError as error:
            logger.error("rollout of row %s broke an invariant: %s", index, error)
            trajectory.flags.append("invariant")
            trajectory.error, trajectory.stop_reason = str(error), trajectory.stop_reason or StopReason.ABORTED
        finally:
            finish_rollout(self.server_manager, request_id)
        sequences = sequences or [await self._placeholder_stream()]
        token_counts = {CACHED_TOKENS: policy.num_cached_tokens, SAMPLED_TOKENS: policy.num_sampled_tokens}
        return self._outputs(trajectory, method, sequences, timing, policy.server_fields | token_counts)

    def _check(self, stream: TokenStream, validate: bool) -> None:
        """Raises InvariantError for a sequence that must not be trained on."""
        if not (stream.images or validate):
            raise InvariantError("the rollout shows no image, and verl 0.9.1 cannot train on a sequence without images")
        self.model.check(stream)
        # verl decodes a finished rollout for its processor, which takes a spelling for an image that is not there.
        text = self._decode([token for token in stream.ids if token not in self.placeholders])
        if spelt := [name for name in self.placeholders.values() if name in text]:
            raise InvariantError(f"the policy has written {', '.join(spelt)} letter by letter, not as a token")

    def _image_sender(self, uid: str) -> Callable[[Sequence[ImagePart]], Awaitable[list[Any]]]:
        """How this rollout's images reach the inference server."""
        if takes_image_references(self.rollout_config):
            return ImageSender(uid).send
        return _as_pil_images

    def _decode(self, token_ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(token_ids, skip_special_tokens=False)
        return text

    async def _placeholder_stream(self) -> TokenStream:
        """Prompt of a rollout that never reached the model: one blank image.

        It takes an image because verl 0.9.1 fails on a micro-batch without any ("'BaseModelOutputWithPooling' object
        has no attribute 'mean'"), and a video that cannot be read fails for its whole group. No video has a frame -1:
        siblings that did see one of that size are to share nothing with it (`images.block_name`).
        """
        envelope = self.model.envelope
        width, height = fit_envelope(envelope.factor, envelope.factor, envelope)
        blank = ImagePart(FrameRecord(-1, 0.0, width, height), np.zeros((height, width, 3), np.uint8))
        stream = TokenStream(self.model.counter)
        await asyncio.to_thread(stream.start, [Message("user", (blank,))])
        return stream

    def _outputs(
        self,
        trajectory: Trajectory,
        method: Method,
        sequences: Sequence[TokenStream],
        timing: AgentLoopMetrics,
        server_fields: Mapping[str, Any],
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        """The rollout as verl takes it. The record goes with the last sequence: reward manager, validation and
        advantage look at no other, and verl hands reward and advantage on to the others."""
        outputs = [self._output(stream, len(trajectory.turns), timing, server_fields) for stream in sequences]
        if method.turn_components:
            number = 0
            for output, stream in zip(outputs, sequences, strict=True):
                credit = {"number": number, "spans": stream.turn_spans, "discount": method.turn_discount}
                output.extra_fields[TURN_CREDIT] = credit
                number += len(stream.turn_spans)
        token_counts = {name: server_fields.get(name) for name in (CACHED_TOKENS, SAMPLED_TOKENS)}
        outputs[-1].extra_fields |= {**token_counts, **pack_record(trajectory)}
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
            multi_modal_data={IMAGE_PARTS: stream.images} if takes_image_parts() else {"images": stream.pil_images},
            num_turns=2 * num_turns + 1,
            metrics=timing,
            extra_fields={
                # Policy versions are logged per rollout.
                "min_global_steps": server_fields.get("min_global_steps", NO_VERSION),
                "max_global_steps": server_fields.get("max_global_steps", NO_VERSION),
                **dict(zip(TOKEN_COUNTS, (sum(mask), mask.count(0)), strict=True)),
                "turn_scores": [],
                "tool_rewards": [],
            },
        )


async def _as_pil_images(images: Sequence[ImagePart]) -> list[Any]:
    return await asyncio.to_thread(pil_images, images)


async def _run_timed(episode: Episode, policy: TokenPolicy, timing: AgentLoopMetrics) -> None:
    """Run the episode; what the policy did not take itself is the time of tools and observations."""
    started = time.perf_counter()
    try:
        await episode.run(policy)
    finally:
        timing.generate_sequences = policy.generation_seconds
        timing.tool_calls = time.perf_counter() - started - policy.policy_seconds
