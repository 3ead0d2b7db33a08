"""verl's FSDP engine under the device name cpu. Imported right after verl's engine registry."""

from __future__ import annotations

from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuFSDPEngine(FSDPEngineWithLMHead):
    """Nothing is overridden: verl's registry only lacks the key (fsdp, cpu)."""
