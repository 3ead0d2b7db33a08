"""Two ranks take one training step's gradients by verl's own engine: padded, packed, and packed with Ulysses over both.

The loss has a term of entropy. A last run has verl's fused kernels compute the head. Before all, transformers computes
the log-probabilities alone, one dialogue at a time. A run that fails has the message under `failed` instead.

    torchrun --standalone --nproc_per_node=2 -m tests.verl_plugin.packing MODEL_DIR FOLDER DTYPE

Rank 0 writes FOLDER/found.pt: by the name of the run, log-probabilities of all tokens of all dialogues in one row, and
the gradient of every weight. A program, since verl's packing replaces the attention of transformers' classes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import AutoModelForImageTextToText
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine import EngineRegistry
from verl.workers.utils.losses import sft_loss

from tests.gpu.forward import dialogues, micro_batch
from tests.verl_plugin.training import whole

PACKED = "packed_by_torch"
ENTROPY_COEFFICIENT = 1e-3


def loss(model_output: Any, data: Any, dp_group: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
    """verl's of fine-tuning, less a multiple of the entropy of all tokens."""
    found, metrics = sft_loss(None, model_output, data, dp_group)
    return found - ENTROPY_COEFFICIENT * model_output["entropy"].values().sum(), metrics


def gradients(
    model_dir: Path, dtype: str, attention: str, ulysses: int, *, micro_batch_size: int = 2, fused: bool = False
) -> dict[str, Any]:
    """Of an engine with offloading, over four dialogues of three lengths.

    Args:
        fused: verl's `use_fused_kernels`.
    """
    packed = attention == PACKED
    engine: Any = EngineRegistry.new(
        "language_model",
        "fsdp2",
        model_config=HFModelConfig(
            path=str(model_dir),
            use_remove_padding=packed,
            override_config={"attn_implementation": attention},
            use_fused_kernels=fused,
            fused_kernel_options={"impl_backend": "torch"},
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
        batch,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=micro_batch_size,
        return_model_output=True,
        calculate_entropy=True,
        use_fused_kernels=fused,
    )
    with engine.train_mode():
        engine.optimizer_zero_grad()
        output = engine.forward_backward_batch(batch, loss)
        weights = dict(engine.module.named_parameters())
        found = {name: whole(weight.grad).float() for name, weight in weights.items() if weight.grad is not None}
    # The last of a sequence is that of the next one's first token, or of none.
    log_probs = [row[:-1].float() for row in output["model_output"]["log_probs"].unbind()]
    entropy = output["model_output"]["entropy"].values().float()
    return {"log_probs": torch.cat(log_probs), "entropy": entropy, **found}


@torch.no_grad()
def by_transformers(model_dir: Path) -> dict[str, Any]:
    """In float32, before verl replaces methods of the model's class."""
    model: Any = AutoModelForImageTextToText.from_pretrained(model_dir, dtype=torch.float32).eval()
    streams = dialogues(model_dir)
    found = []
    for stream in [*streams, streams[0]]:
        batch = micro_batch(model_dir, [stream], "cpu", packed=False)
        ids_1L = torch.tensor([stream.ids])
        inputs = batch["multi_modal_inputs"][0]
        positions_31L = batch["position_ids"].unbind()[0][1:, None]
        logits = model(input_ids=ids_1L, position_ids=positions_31L, use_cache=False, **inputs).logits[0]
        found.append(logits.log_softmax(-1)[:-1].gather(1, ids_1L[0, 1:, None])[:, 0])
    return {"log_probs": torch.cat(found)}


def attempt(*arguments: Any, **options: Any) -> dict[str, Any]:
    """`gradients`, or the message of the error."""
    try:
        return gradients(*arguments, **options)
    except (RuntimeError, ImportError) as error:
        return {"failed": str(error)}


def main() -> None:
    """Command line: see the module's docstring."""
    model_dir, folder, dtype = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo")
    found = {
        "transformers": by_transformers(model_dir),  # first: verl and packing change transformers' classes for good
        "padded": gradients(model_dir, dtype, "sdpa", 1),
        "packed": gradients(model_dir, dtype, PACKED, 1),
        "packed, one by one": gradients(model_dir, dtype, PACKED, 1, micro_batch_size=1),
        "ulysses": attempt(model_dir, dtype, PACKED, 2),
        "ulysses, one by one": attempt(model_dir, dtype, PACKED, 2, micro_batch_size=1),
        "fused": attempt(model_dir, dtype, PACKED, 2, fused=True),  # last: verl replaces a method of the class for it
    }
    if dist.get_rank() == 0:
        torch.save(found, folder / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
