"""How a model encodes messages and images: by its own tokenizer and processor, and verl's builder for them.

Importing it is cheap, since `replay` does; its functions import torch, transformers and verl.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.machine import locate_model
from verl_video_tools.rollout.tokens import (
    ModelTokens,
    TokenBuilder,
    TokenCounter,
    TokenStream,
    check_invariants,
    processor_token_counts,
)
from verl_video_tools.video import envelope_of

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True)
class RunModel(ModelTokens):
    """A model without its weights.

    Attributes:
        processor: the multimodal one.
        pixel_options: the run's `data.mm_processor_kwargs`.
        video_token_id: placeholder token of videos; None for a model that has none.
    """

    processor: Any
    pixel_options: Mapping[str, Any]
    video_token_id: int | None

    @classmethod
    def of(cls, builder: TokenBuilder, processor: Any, pixel_options: Mapping[str, Any] | None) -> RunModel:
        """The model of verl's builder.

        Raises:
            UsageError: the processor is of a kind that we do not know, or no image fits the pixel bounds.
        """
        from verl.utils.tokenizer import get_processor_token_id

        image_token_id, video_token_id = (get_processor_token_id(processor, kind) for kind in ("image", "video"))
        envelope = envelope_of(processor, pixel_options)
        counter = TokenCounter(builder, image_token_id, envelope.factor)
        return cls(builder.tokenizer, counter, envelope, processor, pixel_options or {}, video_token_id)

    @property
    def image_token_id(self) -> int:
        return self.counter.image_token_id

    def check(self, stream: TokenStream) -> None:
        """Raises InvariantError for a sequence whose tokens, mask and images do not belong together."""
        counts = processor_token_counts(self.processor.image_processor, stream.images, self.pixel_options)
        check_invariants(stream, self.image_token_id, counts, self.video_token_id)


def run_model(
    tokenizer: Any,
    processor: Any,
    model_type: str | None,
    pixel_options: Mapping[str, Any] | None,
    template_options: Mapping[str, Any] | None = None,
) -> RunModel:
    """The model of a loaded tokenizer and processor, with the builder that a rollout has.

    Args:
        template_options: the run's `data.apply_chat_template_kwargs`.

    Raises:
        UsageError: as `RunModel.of`.
        ValueError: the tokenizer is not that of a model of this kind.
    """
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    builder = create_continuous_token_builder(
        tokenizer,
        hf_model_type=model_type,
        processor=processor,
        chat_template_kwargs=dict(template_options or {}),
        mm_processor_kwargs=dict(pixel_options or {}),
    )
    return RunModel.of(builder, processor, pixel_options)


def load_model_tokens(processor_path: str, pixel_limits: Mapping[str, int | None] | None = None) -> RunModel:
    """The model of the processor in a folder, or of a name, outside a run.

    Args:
        pixel_limits: the run's `data.mm_processor_kwargs`, see `envelope_of`.

    Raises:
        UsageError: there is no such model (`core.machine.locate_model`), or no processor of a kind that we know.
    """
    processor_path = locate_model(processor_path)
    from transformers import AutoConfig, AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(processor_path)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot load a processor from {processor_path!r}: {error}") from error
    try:
        model_type = AutoConfig.from_pretrained(processor_path).model_type
    except (OSError, ValueError):  # a folder may hold a processor alone; verl then takes its default builder
        model_type = None
    limits = {name: value for name, value in (pixel_limits or {}).items() if value is not None}
    return run_model(processor.tokenizer, processor, model_type, limits)


def load_run_model(model: DictConfig, data: DictConfig, source: str | None = None) -> RunModel:
    """Load tokenizer and processor as a run does, and no weights.

    Args:
        model: the section `model` of the configuration.
        data: the section `data`.
        source: a folder that takes the model's place.

    Raises:
        UsageError: there is no such model, it has no processor of a kind that we know, or no image fits the pixel
            bounds.
    """
    from verl.utils.tokenizer import hf_processor, hf_tokenizer

    from verl_video_tools.verl_plugin.settings import plain_dict

    source = locate_model(source or model.get("tokenizer_path") or model.path)
    trusted = {"trust_remote_code": bool(model.get("trust_remote_code"))}
    try:
        tokenizer = hf_tokenizer(source, **trusted)
        with warnings.catch_warnings(record=True) as hidden:  # verl hides a failure in one
            warnings.simplefilter("always")
            processor = hf_processor(source, **trusted)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"no tokenizer can be loaded from {source}: {' '.join(str(error).split())}") from error
    if processor is None:
        reasons = "; ".join(" ".join(str(warning.message).split()) for warning in hidden)
        raise UsageError(f"no multimodal processor can be loaded from {source}: {reasons or 'it is a text model'}")
    if not getattr(processor, "chat_template", None):  # as verl's model configuration does
        processor.chat_template = getattr(tokenizer, "chat_template", None)
    if template := model.get("custom_chat_template"):
        processor.chat_template = template
    options = (plain_dict(data.get(name)) for name in ("mm_processor_kwargs", "apply_chat_template_kwargs"))
    try:
        return run_model(tokenizer, processor, processor.config.model_type, *options)
    except UsageError:
        raise
    except ValueError as error:  # the folder lacks the tokenizer's files, and transformers makes an empty one
        raise UsageError(f"the tokenizer in {source} is not that of a model of this kind: {error}") from error
