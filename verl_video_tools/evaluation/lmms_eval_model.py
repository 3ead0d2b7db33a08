"""A model of lmms-eval that answers with our loop, so that its tasks measure a method.

lmms-eval (github.com/EvolvingLMMs-Lab/lmms-eval, 0.7) loads it by the entry point `lmms_eval.models`:

    python -m lmms_eval --model video_tools --tasks videomme \\
        --model_args method=videozoomer,base_url=http://host:8000/v1,processor=DIR,min_pixels=25088,max_pixels=100352

A task's text is the question and its visual is the video. The method's prompt contains both. The task's options of
sampling (`until`, `max_new_tokens`) are ignored, because a rollout has several turns. Only lmms-eval imports this
module.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmms_eval.api.model import lmms
from lmms_eval.models.registry_v2 import ModelManifest

from verl_video_tools.core.config import checked_fields
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.machine import page
from verl_video_tools.core.types import Sample
from verl_video_tools.data.append import work_through
from verl_video_tools.evaluation.serve import envelope_of_model
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.chat_policy import ChatPolicy, PolicyConfig
from verl_video_tools.services.encoders import load_encoder
from verl_video_tools.services.retrieval import RetrievalConfig, RetrievalService

logger = logging.getLogger(__name__)

_RETRIEVAL = "retrieval_"
"""Before the fields of `RetrievalConfig`: model arguments are flat."""

MANIFEST = ModelManifest(model_id="video_tools", simple_class_path=f"{__name__}.VideoToolsModel")


class VideoToolsModel(lmms):
    """Answers requests by rollouts of a method with a model behind an endpoint.

    Args:
        method: name of the method.
        processor: folder or name of the model whose processor sets the images' sizes, as in training.
        min_pixels, max_pixels: as `data.mm_processor_kwargs` in training.
        batch_size, max_batch_size, device: lmms-eval's, not used.
        fields: of `PolicyConfig` (`base_url`, `model`, `concurrency`, ...); of `RetrievalConfig` after `retrieval_`
            (`retrieval_model`, ...), for methods that search for frames by text; and of the method's config.

    Raises:
        UsageError: an unknown field, a wrong value, no encoder for a method that searches, or one that cannot be
            loaded.
        SetupError: the package of the encoder's backend is missing.
    """

    is_simple = True

    def __init__(
        self,
        method: str,
        processor: str | None = None,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        batch_size: Any = None,
        max_batch_size: Any = None,
        device: Any = None,
        **fields: Any,
    ) -> None:
        super().__init__()
        policy_fields = inspect.signature(PolicyConfig).parameters
        policy_values = {name: value for name, value in fields.items() if name in policy_fields}
        self._policy = PolicyConfig(
            **checked_fields(PolicyConfig, {"temperature": 0.0, **policy_values}),
            envelope=envelope_of_model(processor, min_pixels, max_pixels),
        )
        retrieval = {
            name.removeprefix(_RETRIEVAL): value for name, value in fields.items() if name.startswith(_RETRIEVAL)
        }
        rest = {
            name: value
            for name, value in fields.items()
            if name not in policy_fields and not name.startswith(_RETRIEVAL)
        }
        self._method = get_method(method, **rest).for_session(0, 1, validate=True)
        if self._method.searches and not retrieval:
            raise UsageError(
                f"{method} searches for frames by text; say with which encoder, such as {_RETRIEVAL}model=DIR "
                f"({page('retrieval')})"
            )
        self._retrieval = RetrievalConfig.from_fields(retrieval)
        self._encoder = load_encoder(self._retrieval) if retrieval else None

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """The answer to each request: empty if the model gave none, or if the rollout failed, which is logged.

        Raises:
            EndpointError: the endpoint cannot be reached.
            UsageError: a request has no video.
        """
        samples = [self._sample(request) for request in requests]
        return asyncio.run(self._answers(samples))

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Not supported: a chat endpoint gives no likelihoods."""
        raise NotImplementedError("video_tools answers in words; choose tasks of output_type generate_until")

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Not supported: the method decides on the rounds of a rollout."""
        raise NotImplementedError("video_tools runs its own turns; choose tasks of output_type generate_until")

    def _sample(self, request: Any) -> Sample:
        question, _, doc_to_visual, doc_id, task, split = request.args
        visuals = doc_to_visual(self.task_dict[task][split][doc_id])
        paths = [visuals] if isinstance(visuals, str | Path) else visuals  # TemporalBench's tasks give no list
        if len(paths) != 1 or not isinstance(paths[0], str | Path):
            raise UsageError(f"{task} {doc_id}: a request takes the path of one video, got {visuals!r:.200}")
        # The truth stays with the task, which grades the answer.
        return Sample(question, ground_truth="", video_path=str(paths[0]), question_type="open")

    async def _answers(self, samples: Sequence[Sample]) -> list[str]:
        answers = [""] * len(samples)
        # A service belongs to one event loop, and each call has a new loop. The encoder is kept.
        retriever = None if self._encoder is None else RetrievalService(self._encoder)
        async with ChatPolicy(self._policy) as chat:
            await chat.client.check_reachable()

            async def answer(number: int) -> None:
                sample = samples[number]
                trajectory = (await chat.rollout(self._method, sample, retriever=retriever)).trajectory
                if trajectory.flags:
                    logger.error("%s: %s", sample.video_path, trajectory.error)
                    await chat.client.check_reachable()
                answers[number] = trajectory.answer or ""

            await work_through(range(len(samples)), answer, self._policy.concurrency)
        return answers
