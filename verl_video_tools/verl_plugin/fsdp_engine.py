"""verl's FSDP engine with what a run needs beyond it. Each part does nothing unless its condition holds.

- Without flash-attn, attention of packed sequences is torch's own (`packed_attention`).
- With `model.use_fused_kernels` the gradient of an untied head is right on several devices (`gather_head`).
- On CPUs there is an engine at all.
- With a `FrozenTowerConfig` the model's vision tower stays as it is: no gradient and no optimizer state of it.

verl 0.9.1 has the option `actor_rollout_ref.actor.freeze_vision_tower`, and no line that reads it. Here the class of an
engine's configuration is the option:

    engine._target_=verl_video_tools.verl_plugin.fsdp_engine.FrozenTowerConfig
    actor_rollout_ref.actor.fsdp_config._target_=verl_video_tools.verl_plugin.fsdp_engine.FrozenTowerConfig

The first is for fine-tuning, the second for GRPO. With our trainers verl's own field does the latter.

Why registration alone does not do: verl's registry chooses an engine by backend, device and vendor, not by what a run
requests. So ours stand under the vendor keys, which go before verl's key of the device alone. The reference policy
shares the process, and has an engine of the same class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn import Parameter
from torch.optim import Optimizer
from verl.workers.config import FSDPEngineConfig
from verl.workers.config.optimizer import build_optimizer
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_video_tools.core.errors import UsageError

TOWER = "visual"
"""Attribute that holds the vision tower in every Qwen-VL model of transformers."""


@dataclass
class FrozenTowerConfig(FSDPEngineConfig):
    """verl's options of an FSDP engine, for one that keeps the vision tower as it is.

    Raises:
        UsageError: verl would not take our engine, so that the tower would train without a word.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        engine = EngineRegistry.get_engine_cls("language_model", self.strategy)
        if not issubclass(engine, VideoToolsEngine):
            raise UsageError(
                f"verl would take {engine.__qualname__} for strategy={self.strategy} on this device, and train the "
                "vision tower that should stay frozen. The engine that freezes it takes fsdp2 and is registered for "
                "cuda (nvidia, amd), npu (huawei) and cpu; VERL_ENGINE_DEVICE and VERL_ENGINE_VENDOR choose among them"
            )


def vision_tower(model: nn.Module) -> nn.Module:
    """The part of a Qwen-VL model that makes features of pixels, down to the width of the language model.

    Patch embedding, positions, blocks, merger, and the mergers of DeepStack in Qwen3-VL. LoRA adapters within are parts
    of it as well.

    Raises:
        UsageError: the model has none under the name that Qwen-VL models give it.
    """
    for name, module in model.named_modules():
        if name.rpartition(".")[2] == TOWER:
            return module
    raise UsageError(f"{type(model).__name__} has no vision tower named {TOWER!r}; do not ask for it to be frozen")


def trained_parameters(model: nn.Module) -> Iterator[Parameter]:
    """Those that an optimizer may change."""
    return (parameter for parameter in model.parameters() if parameter.requires_grad)


def gather_head(model: nn.Module) -> None:
    """Let a model's forward pass find the weight of its head whole, where FSDP2 divides the head for itself.

    verl's fused kernels multiply by that weight without calling the head, and nothing else would gather it. verl 0.9.1
    fails then for Qwen2.5-VL. For Qwen3-VL it gathers the weight outside of FSDP, and each device keeps of the gradient
    what its own tokens give. A head that shares the embeddings' weight belongs to the model's own group, which is whole
    during the forward pass.

    Args:
        model: after `fully_shard`, with its adapter.
    """
    head = model.get_output_embeddings()
    if isinstance(head, FSDPModule):
        model.register_forward_pre_hook(lambda *_: head.unshard())
        # With a backward pass FSDP reduces the gradient and divides the weight again.
        model.register_forward_hook(lambda *_: None if torch.is_grad_enabled() else head.reshard())


class VideoToolsEngine(FSDPEngineWithLMHead):
    """What the registered classes share."""

    engine_config: Any  # of verl, which does not annotate these
    model_config: Any
    optimizer_config: Any
    rank: int

    def _build_module(self) -> Any:
        """Loads the model with attention that this machine has."""
        from verl_video_tools.verl_plugin import packed_attention  # imports models, which other processes need not

        packed_attention.register()
        packed_attention.replace_flash_attention(self.model_config.hf_config)
        module = super()._build_module()
        packed_attention.use(module)
        return module

    def _build_fsdp_module(self, module: Any) -> Any:
        """Freezes the tower at the last moment at which it is whole.

        Adapters are there by now, and FSDP takes from a weight whether it will have a gradient to reduce.
        """
        if isinstance(self.engine_config, FrozenTowerConfig):
            if self.engine_config.strategy != "fsdp2":
                raise UsageError(
                    f"strategy={self.engine_config.strategy} with a frozen vision tower: FSDP1 puts frozen and trained "
                    "weights into one parameter; set strategy=fsdp2"
                )
            tower = vision_tower(module).requires_grad_(False)
            if self.rank == 0:
                frozen, total = (sum(weight.numel() for weight in part.parameters()) for part in (tower, module))
                print(f"[verl_video_tools] vision tower frozen: {frozen:,} of {total:,} weights", flush=True)
        module = super()._build_fsdp_module(module)
        if self.model_config.use_fused_kernels:
            gather_head(module)
        return module

    def _build_optimizer(self, module: Any) -> Optimizer:
        """Leaves frozen weights out.

        verl gives the optimizer all of them. Its offloading would make an empty state for each frozen one, and not
        every optimizer leaves a weight without a gradient alone.
        """
        if not isinstance(self.engine_config, FrozenTowerConfig):
            return super()._build_optimizer(module)
        return build_optimizer(trained_parameters(module), self.optimizer_config)


_REGISTERED_AS: Any = {"model_type": "language_model", "backend": ["fsdp", "fsdp2"]}  # fsdp to be refused by name


@EngineRegistry.register(**_REGISTERED_AS, device="cuda", vendor=["nvidia", "amd"])
@EngineRegistry.register(**_REGISTERED_AS, device="npu", vendor="huawei")
class AcceleratorEngine(VideoToolsEngine):
    """For the vendors that verl brings platforms of."""


@EngineRegistry.register(**_REGISTERED_AS, device="cpu")
class CpuEngine(VideoToolsEngine):
    """verl's registry lacks the key (fsdp, cpu)."""

    def _build_fsdp_module(self, module: Any) -> Any:
        """Wraps a reference model like an actor.

        verl offloads models that are never trained to pinned memory, which takes an NVIDIA driver, and which makes no
        sense where the weights are in main memory anyhow.
        """
        config = self.engine_config
        self.engine_config = replace(config, forward_only=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = config
