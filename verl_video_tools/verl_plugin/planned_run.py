"""A run's configuration as verl composes it from a command line, and its tokenizer and processor, without the run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal

from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.machine import locate_model
from verl_video_tools.rollout.tokens import ModelTokens, TokenCounter
from verl_video_tools.verl_plugin.hydra_groups import register
from verl_video_tools.verl_plugin.run_checks import check_run_options
from verl_video_tools.verl_plugin.settings import check_sections, honour_freeze_vision_tower, plain_dict
from verl_video_tools.video import envelope_of

Kind = Literal["grpo", "sft"]
_CONFIG_NAMES: dict[Kind, str] = {"grpo": "ppo_trainer", "sft": "sft_trainer_engine"}


def compose_run(kind: Kind, overrides: Sequence[str]) -> DictConfig:
    """The configuration that verl's trainer makes of its command line.

    Raises:
        UsageError: an override is malformed, or names an option that does not exist.
    """
    register()  # a process that only composes may not have imported verl
    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose(_CONFIG_NAMES[kind], overrides=list(overrides))
        OmegaConf.resolve(config)
        check_sections(plain_dict(config.get("video_tools")))
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(f"verl's configuration cannot be composed: {' '.join(str(error).split())}") from error
    return config


def check_grpo_options(config: DictConfig) -> None:
    """What verl and our trainer check of the options before they start a worker, in the same order.

    Raises:
        UsageError: they refuse them, with their reason.
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")  # it warns of every run without a critic, and says that all is well
            validate_config(config, need_reference_policy(config), need_critic(config))
    except (AssertionError, ArithmeticError, ValueError, TypeError, OmegaConfBaseException, HydraException) as error:
        raise UsageError(f"verl refuses the options: {' '.join(str(error).split()) or repr(error)}") from error
    check_run_options(config)
    honour_freeze_vision_tower(config.copy())


def known_loggers() -> tuple[str, ...]:
    """What `trainer.logger` may name; verl refuses others when all workers are up."""
    from verl.utils.tracking import Tracking

    return (*Tracking.supported_backend, "tracking")


@dataclass(frozen=True)
class RunModel:
    """What a run's loops encode messages with.

    Attributes:
        source: folder or name that it was loaded from.
        processor: the multimodal one; its `config` is the model's.
        tokens: counts of messages, by verl's builder and within the run's pixel bounds.
        pixel_options: the run's `data.mm_processor_kwargs`.
    """

    source: str
    processor: Any
    tokens: ModelTokens
    pixel_options: dict[str, Any]
    image_token_id: int
    video_token_id: int | None


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
    from verl.utils.tokenizer import get_processor_token_id, hf_processor, hf_tokenizer
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

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
    pixel_options = plain_dict(data.get("mm_processor_kwargs"))
    envelope = envelope_of(processor, pixel_options)
    try:
        builder = create_continuous_token_builder(
            tokenizer,
            hf_model_type=processor.config.model_type,
            chat_template_kwargs=plain_dict(data.get("apply_chat_template_kwargs")),
            mm_processor_kwargs=pixel_options,
            processor=processor,
        )
    except ValueError as error:  # the folder lacks the tokenizer's files, and transformers makes an empty one
        raise UsageError(f"the tokenizer in {source} is not that of a model of this kind: {error}") from error
    image_token_id = get_processor_token_id(processor, "image")
    tokens = ModelTokens(tokenizer, TokenCounter(builder, image_token_id, envelope.factor), envelope)
    video_token_id = get_processor_token_id(processor, "video")
    return RunModel(source, processor, tokens, pixel_options, image_token_id, video_token_id)
