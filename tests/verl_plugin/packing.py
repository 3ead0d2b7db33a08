"""Two ranks take one training step's gradients by verl's own engine: padded, packed, and packed with Ulysses over both.

The loss has a term of entropy. Runs come in pairs where verl's fused kernels compute the head as well (`PAIRS`). Before
all, transformers computes the log-probabilities alone, one dialogue at a time. A run that fails has the message under
`failed` instead.

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
from verl_video_tools.verl_plugin.fsdp_engine import FrozenTowerConfig
from verl_video_tools.verl_plugin.packed_attention import NAME as PACKED

ENTROPY_COEFFICIENT = 1e-3
TEMPERATURE = 0.7
FUSED = ", fused"
PAIRS: dict[str, dict[str, Any]] = {
    "padded": {"attention": "sdpa"},
    "each its own": {"own_rows": True, "temperature": TEMPERATURE},
    "ulysses": {"ulysses": 2},
    "ulysses, adapter": {"ulysses": 2, "temperature": TEMPERATURE, "lora_rank": 4},
    "ulysses, frozen tower": {"ulysses": 2, "temperature": TEMPERATURE, "frozen": True},
}
"""Options of `gradients` by the name of a run; with `FUSED` after it, the same by verl's fused kernels."""


def loss(model_output: Any, data: Any, dp_group: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
    """verl's of fine-tuning, less a multiple of the entropy of all tokens."""
    found, metrics = sft_loss(None, model_output, data, dp_group)
    return found - ENTROPY_COEFFICIENT * model_output["entropy"].values().sum(), metrics


def gradients(
    model_dir: Path,
    dtype: str,
    *,
    attention: str = PACKED,
    ulysses: int = 1,
    micro_batch_size: int = 2,
    fused: bool = False,
    temperature: float = 1.0,
    lora_rank: int = 0,
    frozen: bool = False,
    own_rows: bool = False,
) -> dict[str, Any]:
    """Of an engine with offloading, over four dialogues of three lengths.

    Args:
        attention: this plugin's and flash-attn's pack the dialogues, all others pad them.
        fused: verl's `use_fused_kernels`.
        frozen: the vision tower is.
        own_rows: each of two ranks has two of the dialogues; without it each has all of them.
    """
    torch.manual_seed(0)  # of an adapter
    packed = attention == PACKED or attention.startswith("flash")
    engine: Any = EngineRegistry.new(
        "language_model",
        "fsdp2",
        model_config=HFModelConfig(
            path=str(model_dir),
            use_remove_padding=packed,
            override_config={"attn_implementation": attention},
            use_fused_kernels=fused,
            fused_kernel_options={"impl_backend": "torch"},
            lora_rank=lora_rank,
            exclude_modules=".*visual.*",
        ),
        engine_config=(FrozenTowerConfig if frozen else FSDPEngineConfig)(
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
    if own_rows:
        streams = streams[dist.get_rank() :: 2]
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
        temperature=temperature,
    )
    with engine.eval_mode(), torch.no_grad():  # first, as a run does: its weights have to be divided again afterwards
        before = engine.forward_backward_batch(batch, loss, forward_only=True)
    with engine.train_mode():
        engine.optimizer_zero_grad()
        output = engine.forward_backward_batch(batch, loss)
        weights = dict(engine.module.named_parameters())
        found = {name: whole(weight.grad).float() for name, weight in weights.items() if weight.grad is not None}
    # The last of a sequence is that of the next one's first token, or of none.
    log_probs, old_log_probs = (
        torch.cat([row[:-1].float() for row in each["model_output"]["log_probs"].unbind()]) for each in (output, before)
    )
    torch.testing.assert_close(log_probs, old_log_probs, rtol=0, atol=1e-6)
    entropy = output["model_output"]["entropy"].values().float()
    return {"log_probs": log_probs, "entropy": entropy, **found}


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
    # First: verl and packing change transformers' classes for good.
    found = {"transformers": by_transformers(model_dir)}
    for name, options in PAIRS.items():
        found[name] = attempt(model_dir, dtype, **options)
        found[name + FUSED] = attempt(model_dir, dtype, **options, fused=True)
    found |= {
        "packed": gradients(model_dir, dtype),
        "packed, one by one": gradients(model_dir, dtype, micro_batch_size=1),
        "ulysses, one by one": attempt(model_dir, dtype, ulysses=2, micro_batch_size=1),
    }
    if dist.get_rank() == 0:
        torch.save(found, folder / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
