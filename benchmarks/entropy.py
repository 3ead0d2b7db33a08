"""Peak memory of log-probabilities and entropy, forward and backward, by verl's own code, in units of bf16 logits.

    python -m benchmarks.entropy [--vocabulary 8192] [--tokens 2048]

Each variant runs in a process of its own, over ten lengths of which none has the number of chunks of another: verl
compiles the entropy, and torch gives up compiling after eight such numbers. Prints, for the first and for the last
length, the most bytes that are alive beyond the last hidden states and the weights of the language model's head, and
how much of that is more than log-probabilities alone take. Measured on the CPU, by the allocations that torch's
profiler counts; with `--device cuda` by those of torch's allocator.

On GPUs verl takes flash-attn's cross entropy for log-probabilities. It needs a GPU; a stand-in that allocates what it
does takes its place: nothing in the forward pass, the gradient of the logits in the backward pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

CHUNK_TOKENS = 2048
"""verl's `entropy_from_logits_chunk_size`."""
NUM_LENGTHS, HIDDEN = 10, 64


@dataclass(frozen=True)
class Variant:
    """verl's options of the actor; `entropy` is whether the loss has a term of it."""

    entropy: bool = True
    chunking: bool = False
    checkpointing: bool = False
    compiled: bool = False
    fused: bool = False


VARIANTS = {
    "log-probabilities alone": Variant(entropy=False),
    "verl's default, compiled": Variant(compiled=True),
    "verl's default, eager": Variant(),
    "chunking, compiled": Variant(chunking=True, compiled=True),
    "chunking, eager": Variant(chunking=True),
    "checkpointing, compiled": Variant(checkpointing=True, compiled=True),
    "checkpointing, eager": Variant(checkpointing=True),
    "both, compiled": Variant(chunking=True, checkpointing=True, compiled=True),
    "both, eager": Variant(chunking=True, checkpointing=True),
    "fused kernels": Variant(fused=True),
}
BASELINE = "log-probabilities alone"


class CrossEntropy(torch.autograd.Function):
    """Allocates what flash-attn's does, but for blocks of rows, which it has in registers."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, labels: torch.Tensor, inplace_backward: bool, block_rows: int = 128
    ) -> torch.Tensor:
        lse = torch.cat([block.float().logsumexp(-1) for block in logits.split(block_rows)])
        ctx.save_for_backward(logits, labels, lse)
        ctx.inplace_backward, ctx.block_rows = inplace_backward, block_rows
        return lse - logits.gather(-1, labels[:, None]).squeeze(-1).float()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        logits, labels, lse = ctx.saved_tensors
        found = logits if ctx.inplace_backward else torch.empty_like(logits)
        for rows in torch.arange(len(logits)).split(ctx.block_rows):
            block = (logits[rows].float() - lse[rows, None]).exp()
            block[torch.arange(len(rows)), labels[rows]] -= 1
            found[rows] = (block * gradient[rows, None]).to(found.dtype)
        return found, None, None, None


def provide_cross_entropy() -> None:
    """Under the name that verl's functions import it by, and only while they do: others would miss the rest of it."""

    def cross_entropy_loss(logits: torch.Tensor, labels: torch.Tensor, inplace_backward: bool = False) -> Any:
        losses = CrossEntropy.apply(logits, labels, inplace_backward)
        return losses, torch.zeros_like(losses)

    names = ["flash_attn", "flash_attn.ops", "flash_attn.ops.triton", "flash_attn.ops.triton.cross_entropy"]
    sys.modules.update({name: ModuleType(name) for name in names})
    vars(sys.modules[names[-1]])["cross_entropy_loss"] = cross_entropy_loss
    for functions in ("verl.utils.torch_functional", "verl.utils.experimental.torch_functional"):
        assert vars(import_module(functions))["cross_entropy_loss"] is cross_entropy_loss
    for name in names:
        del sys.modules[name]


def step(variant: Variant, device: str = "cpu") -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]:
    """Function of hidden states (tokens, width), weights (vocabulary, width), labels (tokens,): one backward pass.

    Args:
        device: where these lie, `cpu` or `cuda`.
    """
    from verl.utils import tensordict_utils as tu
    from verl.utils import torch_functional
    from verl.utils.experimental.torch_functional import FusedLinearForPPO
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    # As `FSDPEngine.__init__` chooses it.
    entropy = (
        torch_functional.entropy_from_logits_with_chunking if variant.chunking else torch_functional.entropy_from_logits
    )
    engine = SimpleNamespace(
        engine_config=SimpleNamespace(
            entropy_checkpointing=variant.checkpointing,
            entropy_from_logits_with_chunking=variant.chunking,
            entropy_from_logits_chunk_size=CHUNK_TOKENS,
        ),
        compute_entropy_from_logits=torch.compile(entropy, dynamic=True) if variant.compiled else entropy,
        _gather_and_unpad_packed=lambda values, pad_size: values,
    )

    def run(hidden: torch.Tensor, weights: torch.Tensor, labels: torch.Tensor) -> None:
        batch = tu.get_tensordict(
            {"input_ids": torch.nested.as_nested_tensor([labels], layout=torch.jagged)},
            {"use_fused_kernels": variant.fused, "calculate_entropy": variant.entropy},
        )
        arguments = {"input_ids_rmpad_rolled": labels, "temperature_rmpad": torch.ones(len(labels), device=device)}
        with torch.autocast(device, torch.bfloat16):
            if variant.fused:
                log_probs, entropy = FusedLinearForPPO()(hidden[None], weights, labels[None])
                output = SimpleNamespace(log_probs=log_probs, entropy=entropy)
            else:
                output = SimpleNamespace(logits=torch.nn.functional.linear(hidden[None], weights))
            found = FSDPEngineWithLMHead.prepare_model_outputs(
                engine, output, {**arguments, "pad_size": 0, "temperature_is_one": True}, batch, None
            )
            del output
            loss = -found["log_probs"].values().sum()
            if variant.entropy:
                loss = loss - 0.001 * found["entropy"].values().float().sum()
            del found
        loss.backward()

    return run


def peak_bytes(function: Callable[[], object], device: str = "cpu") -> int:
    """The most bytes that are alive during a call, beyond those before it, on the CPU or on a GPU."""
    from torch.profiler import ProfilerActivity, profile

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        function()
    alive = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            most = max(most, alive)
    return most


def measure(variant: Variant, vocabulary: int, tokens: int, device: str = "cpu") -> Iterator[float]:
    """Peaks of ten lengths, in units of the logits in bfloat16; of the longest last.

    Args:
        tokens: difference of one length to the next.
    """
    if not find_spec("flash_attn"):
        provide_cross_entropy()
    torch.manual_seed(0)
    run = step(variant, device)
    weights = torch.randn(vocabulary, HIDDEN, dtype=torch.bfloat16, device=device, requires_grad=True)
    for number in range(1, NUM_LENGTHS + 1):
        length = number * tokens + 64  # so that each has a chunk more than the one before
        hidden = torch.randn(length, HIDDEN, dtype=torch.bfloat16, device=device, requires_grad=True)
        labels = torch.randint(vocabulary, (length,), device=device)
        run(hidden, weights, labels)  # compiles
        weights.grad = hidden.grad = None
        peak = peak_bytes(lambda: run(hidden, weights, labels), device)  # noqa: B023 - called at once
        yield peak / (2 * length * vocabulary)
        weights.grad = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--tokens", type=int, default=CHUNK_TOKENS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.variant:
        variant = VARIANTS[arguments.variant]
        print(json.dumps(list(measure(variant, arguments.vocabulary, arguments.tokens, arguments.device))))
        return
    print(f"{'':26}{'peak, first':>14}{'last':>8}{'entropy, first':>18}{'last':>8}")
    alone: list[float] = []
    for name in VARIANTS:
        command = [sys.executable, "-m", "benchmarks.entropy", "--variant", name]
        command += [
            "--vocabulary",
            str(arguments.vocabulary),
            "--tokens",
            str(arguments.tokens),
            "--device",
            arguments.device,
        ]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        if child.returncode:
            raise SystemExit(f"{name}: {child.stderr[-4000:]}")
        peaks = json.loads(child.stdout.splitlines()[-1])
        alone = alone or peaks
        first, last = peaks[0] - alone[0], peaks[-1] - alone[-1]
        print(f"{name:26}{peaks[0]:>14.2f}{peaks[-1]:>8.2f}{first:>18.2f}{last:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
