"""Two ranks take one training step's gradients by verl's own engine: padded, packed, and packed with Ulysses over both.

    python -m torch.distributed.run --standalone --nproc_per_node=2 -m tests.verl_plugin.packing MODEL_DIR FOLDER DTYPE

Rank 0 writes FOLDER/found.pt: by the name of the run, log-probabilities of all tokens of all dialogues in one row, and
the gradient of every weight. A program, since verl's packing replaces the attention of transformers' classes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine import EngineRegistry
from verl.workers.utils.losses import sft_loss

from tests.gpu.forward import dialogues, micro_batch
from tests.verl_plugin.training import whole

PACKED = "packed_by_torch"


def gradients(model_dir: Path, dtype: str, attention: str, ulysses: int, micro_batch_size: int = 2) -> dict[str, Any]:
    """Of an engine with offloading, over four dialogues of three lengths."""
    packed = attention == PACKED
    engine: Any = EngineRegistry.new(
        "language_model",
        "fsdp2",
        model_config=HFModelConfig(
            path=str(model_dir), use_remove_padding=packed, override_config={"attn_implementation": attention}
        ),
        engine_config=FSDPEngineConfig(
            strategy="fsdp2",
            param_offload=True,
            optimizer_offload=True,
            ulysses_sequence_parallel_size=ulysses,
            mixed_precision={"param_dtype": dtype, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
            use_torch_compile=False,
        ),
        optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=2),
        checkpoint_config=CheckpointConfig(),
    )
    engine.initialize()
    streams = dialogues(model_dir)
    streams.append(streams[0])
    batch = micro_batch(model_dir, streams, "cpu", packed=packed)
    masks = [torch.tensor([0] * len(it.prompt_ids) + it.response_mask) for it in streams]
    batch["loss_mask"] = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
    tu.assign_non_tensor(
        batch, use_dynamic_bsz=False, micro_batch_size_per_gpu=micro_batch_size, return_model_output=True
    )
    with engine.train_mode():
        engine.optimizer_zero_grad()
        output = engine.forward_backward_batch(batch, lambda *args, **kwargs: sft_loss(None, *args, **kwargs))
        weights = dict(engine.module.named_parameters())
        found = {name: whole(weight.grad).float() for name, weight in weights.items() if weight.grad is not None}
    # The last of a sequence is that of the next one's first token, or of none.
    log_probs = [row[:-1].float() for row in output["model_output"]["log_probs"].unbind()]
    return {"log_probs": torch.cat(log_probs), **found}


def main() -> None:
    """Command line: see the module's docstring."""
    model_dir, folder, dtype = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo")
    found = {
        "padded": gradients(model_dir, dtype, "sdpa", 1),  # first: packing changes transformers' classes for good
        "packed": gradients(model_dir, dtype, PACKED, 1),
        "ulysses": gradients(model_dir, dtype, PACKED, 2),
        "ulysses, one by one": gradients(model_dir, dtype, PACKED, 2, micro_batch_size=1),
    }
    if dist.get_rank() == 0:
        torch.save(found, folder / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
