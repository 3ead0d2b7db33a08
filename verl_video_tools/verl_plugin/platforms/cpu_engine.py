"""verl's FSDP engine under the device name cpu. Imported right after verl's engine registry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuFSDPEngine(FSDPEngineWithLMHead):
    """verl's registry lacks the key (fsdp, cpu); two methods are overridden."""

    engine_config: Any  # of verl, which does not annotate these
    use_remove_padding: bool

    def _build_module(self) -> Any:
        """Lets a model with packed sequences have the stand-in for flash-attn, by the name of its attention."""
        if not self.use_remove_padding:
            return super()._build_module()
        from verl_video_tools.verl_plugin.platforms import cpu_attention

        cpu_attention.register()
        module = super()._build_module()
        cpu_attention.use(module)
        return module

    def _build_fsdp_module(self, module: Any) -> Any:
        """Wraps a reference model like an actor.

        verl offloads models that are never trained to pinned memory, which takes an NVIDIA driver, and which has no
        sense where the weights are in main memory anyhow.
        """
        config = self.engine_config
        self.engine_config = replace(config, forward_only=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = config
