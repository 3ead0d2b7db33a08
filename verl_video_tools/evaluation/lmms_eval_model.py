"""A model of lmms-eval that answers with our loop, so that its tasks measure a method.

lmms-eval (github.com/EvolvingLMMs-Lab/lmms-eval, 0.7) finds it by the entry point `lmms_eval.models`:

    python -m lmms_eval --model video_tools --tasks videomme \\
        --model_args method=videozoomer,base_url=http://localhost:8000/v1,processor=Qwen/Qwen2.5-VL-7B-Instruct

A task's text is the question, its visual the video; our prompts stand around both, and what the task says of sampling
(`until`, `max_new_tokens`) is not used: a rollout has several turns. Only lmms-eval itself imports this module.
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

from verl_video_tools.endpoint.policy import ChatPolicy, PolicyConfig
from verl_video_tools.errors import UsageError
from verl_video_tools.evaluation.processor import envelope_of_model
from verl_video_tools.methods import get_method
from verl_video_tools.methods.fields import checked_fields
from verl_video_tools.types import Sample

logger = logging.getLogger(__name__)

MANIFEST = ModelManifest(model_id="video_tools", simple_class_path=f"{__name__}.VideoToolsModel")


class VideoToolsModel(lmms):
    """Answers requests by rollouts of a method with a model behind an endpoint.

    Args:
        method: name of the method.
        processor: folder or name of the model, whose processor decides the pictures' sizes, as in training.
        min_pixels, max_pixels: as `data.mm_processor_kwargs` in training.
        batch_size, max_batch_size, device: lmms-eval's, not used.
        fields: of `PolicyConfig` (`base_url`, `model`, `concurrency`, ...), and of the method's config.

    Raises:
        UsageError: an unknown field, or a wrong value.
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
        own = inspect.signature(PolicyConfig).parameters
        asked = {name: value for name, value in fields.items() if name in own}
        self._policy = PolicyConfig(
            **checked_fields(PolicyConfig, {"temperature": 0.0, **asked}),
            envelope=envelope_of_model(processor, min_pixels, max_pixels),
        )
        rest = {name: value for name, value in fields.items() if name not in own}
        self._method = get_method(method, **rest).for_session(0, 1, validate=True)
        if self._method.searches:
            raise UsageError(f"{method} searches for frames by text, which this adapter does not offer; use `vvt eval`")

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """The answer to each request, empty where the model gave none or the rollout failed; failures are logged.

        Raises:
            EndpointError: the endpoint cannot be reached.
            UsageError: a request has no video.
        """
        samples = [self._sample(request) for request in requests]
        return asyncio.run(self._answers(samples))

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Not offered: a chat endpoint gives no likelihoods."""
        raise NotImplementedError("video_tools answers in words; choose tasks of output_type generate_until")

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Not offered: the rounds of a rollout are the method's."""
        raise NotImplementedError("video_tools runs its own turns; choose tasks of output_type generate_until")

    def _sample(self, request: Any) -> Sample:
        question, _, doc_to_visual, doc_id, task, split = request.args
        visuals = doc_to_visual(self.task_dict[task][split][doc_id])
        if len(visuals) != 1 or not isinstance(visuals[0], str | Path):
            raise UsageError(f"{task} {doc_id}: a request takes the path of one video, got {visuals!r:.200}")
        # The truth stays with the task, which grades the answer.
        return Sample(question, ground_truth="", video_path=str(visuals[0]), question_type="open")

    async def _answers(self, samples: Sequence[Sample]) -> list[str]:
        answers = [""] * len(samples)
        left = iter(enumerate(samples))
        async with ChatPolicy(self._policy) as chat:
            await chat.check_reachable()

            async def work() -> None:
                for number, sample in left:
                    trajectory = (await chat.rollout(self._method, sample)).trajectory
                    if trajectory.flags:
                        logger.error("%s: %s", sample.video_path, trajectory.error)
                        await chat.check_reachable()
                    answers[number] = trajectory.answer or ""

            await asyncio.gather(*(work() for _ in range(min(self._policy.concurrency, len(samples)))))
        return answers
