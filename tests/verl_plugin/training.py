"""Two ranks fine-tune the tiny model for two steps by verl's own engine, once with its vision tower frozen.

    torchrun --standalone --nproc_per_node=2 -m tests.verl_plugin.training MODEL_DIR FOLDER

Prints nothing of its own; rank 0 writes what it found to FOLDER/found.json (see `Found`), and the weights of its
checkpoint FOLDER/run/global_step_1 to FOLDER/saved.pt. A program, since verl's platform and process group are those of
a process.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine import EngineRegistry
from verl.workers.utils.losses import sft_loss

from tests.gpu.forward import dialogues, micro_batch
from verl_video_tools.verl_plugin.fsdp_engine import TOWER, FrozenTowerConfig

CHECKPOINT = "run/global_step_1"
FLOAT32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


@dataclass
class Found:
    """By names of weights; those of the tower and others."""

    engine: str = ""
    tower: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    with_gradient: list[str] = field(default_factory=list)
    with_state: list[str] = field(default_factory=list)
    given_to_the_optimiser: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    moved_without_the_option: list[str] = field(default_factory=list)
    differ_after_resuming: list[str] = field(default_factory=list)
    sent_otherwise_than_held: list[str] = field(default_factory=list)


class Run:
    """An engine as verl's worker makes it, and its steps."""

    def __init__(self, config_class: type[FSDPEngineConfig], model_dir: Path) -> None:
        self.engine: Any = EngineRegistry.new(
            "language_model",
            "fsdp2",
            model_config=HFModelConfig(
                path=str(model_dir), use_remove_padding=False, override_config={"attn_implementation": "sdpa"}
            ),
            engine_config=config_class(
                strategy="fsdp2",
                param_offload=True,
                optimizer_offload=True,
                mixed_precision=FLOAT32,
                use_torch_compile=False,
            ),
            optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=2),
            checkpoint_config=CheckpointConfig(),
        )
        self.engine.initialize()
        first = dialogues(model_dir)[dist.get_rank() :][:2]  # each rank has its own
        self.batch = micro_batch(model_dir, first, "cpu", packed=False)
        masks = [torch.tensor([0] * len(it.prompt_ids) + it.response_mask) for it in first]
        self.batch["loss_mask"] = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
        tu.assign_non_tensor(self.batch, use_dynamic_bsz=False, micro_batch_size_per_gpu=1)

    def step(self) -> list[str]:
        """One update over two micro-batches; the names of weights that had a gradient."""
        engine = self.engine
        with engine.train_mode():
            engine.optimizer_zero_grad()
            engine.forward_backward_batch(self.batch, lambda *args, **kwargs: sft_loss(None, *args, **kwargs))
            with_gradient = [name for name, weight in self.named() if weight.grad is not None]
            engine.optimizer_step()
            engine.lr_scheduler_step()
        return with_gradient

    def named(self) -> list[tuple[str, Any]]:
        return list(self.engine.module.named_parameters())

    def weights(self) -> dict[str, torch.Tensor]:
        """Whole, on every rank."""
        return {name: whole(weight.detach()).clone() for name, weight in self.named()}

    def sent(self) -> dict[str, torch.Tensor]:
        """As they are sent to vLLM."""
        generator, _ = self.engine.get_per_tensor_param()
        return {name: whole(weight).clone() for name, weight in generator}


def whole(weight: torch.Tensor) -> torch.Tensor:
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def by_expert(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With a matrix for each projection of each expert, which vLLM reads; transformers holds them in two tensors."""
    found: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        experts, _, projection = name.rpartition(".")
        if not experts.endswith(".experts"):
            found[name] = weight
            continue
        for number, of_expert in enumerate(weight):
            parts = of_expert.chunk(2) if projection == "gate_up_proj" else [of_expert]
            names = ["gate_proj", "up_proj"] if projection == "gate_up_proj" else [projection]
            found |= {f"{experts}.{number}.{part}.weight": matrix for part, matrix in zip(names, parts, strict=True)}
    return found


def differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> list[str]:
    assert one.keys() == other.keys()
    return sorted(name for name in one if not torch.equal(one[name], other[name]))


def main() -> None:
    """Command line: see the module's docstring."""
    model_dir, folder = Path(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo")
    found = Found()

    frozen = Run(FrozenTowerConfig, model_dir)
    found.engine = type(frozen.engine).__name__
    names = {weight: name for name, weight in frozen.named()}
    found.tower = [name for name in names.values() if TOWER in name.split(".")]
    found.others = [name for name in names.values() if TOWER not in name.split(".")]
    before = frozen.weights()
    found.with_gradient = frozen.step()
    frozen.engine.save_checkpoint(str(folder / CHECKPOINT), global_step=1)
    saved = frozen.weights()
    frozen.step()
    optimizer = frozen.engine.optimizer
    found.with_state = [name for weight, name in names.items() if weight in optimizer.state]
    found.given_to_the_optimiser = [names[weight] for group in optimizer.param_groups for weight in group["params"]]
    after = frozen.weights()
    found.moved = differing(before, after)
    found.sent_otherwise_than_held = differing(frozen.sent(), by_expert(after))

    resumed = Run(FrozenTowerConfig, model_dir)
    resumed.engine.load_checkpoint(str(folder / CHECKPOINT))
    resumed.step()
    found.differ_after_resuming = differing(after, resumed.weights())

    plain = Run(FSDPEngineConfig, model_dir)
    plain.step()
    found.moved_without_the_option = differing(before, plain.weights())
    if dist.get_rank() == 0:
        torch.save(saved, folder / "saved.pt")
        (folder / "found.json").write_text(json.dumps(asdict(found)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
