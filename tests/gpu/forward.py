"""Log-probabilities of dialogues with pictures, by verl's own inputs and forward pass.

    python -m tests.gpu.forward MODEL_DIR DEVICE

Prints one JSON object of log-probabilities, a list per dialogue: `host` (float32 on the CPU), `float32` on the device,
and in bfloat16 `padded`, `packed` and `leaking`, which is packed with positions that go on from dialogue to dialogue, a
fault. A program of its own, since packing replaces the attention of transformers' classes. Packed sequences are kept
apart by flash-attn where it is installed, and otherwise by torch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForImageTextToText
from transformers.utils import is_flash_attn_2_available
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.models.transformers.monkey_patch import apply_monkey_patch
from verl.utils import hf_processor, hf_tokenizer
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from tests.integration.dialogue import messages
from verl_video_tools.core.types import Message
from verl_video_tools.rollout.tokens import TokenStream
from verl_video_tools.verl_plugin import packed_attention
from verl_video_tools.verl_plugin.model_tokens import load_model_tokens


def dialogues(folder: Path) -> list[TokenStream]:
    """Three of different lengths and numbers of pictures (2, 4 and 7), each with a turn after its last picture."""
    processor, tokenizer = hf_processor(str(folder)), hf_tokenizer(str(folder))
    end_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    question, observation = messages(processor, {})
    streams = []
    for number, content in enumerate((question[:4], question, question)):
        stream = TokenStream(load_model_tokens(str(folder)).counter)
        stream.start([Message("user", content)])
        stream.append_turn([*tokenizer.encode("frame 0 red circle, frame 20 blue square"), end_id], None)
        if number == 2:
            stream.append_observation(observation, end_id)
            stream.append_turn([*tokenizer.encode("frame 80 green cross"), end_id], None)
        streams.append(stream)
    return streams


def micro_batch(folder: Path, streams: Sequence[TokenStream], device: str, packed: bool) -> Any:
    """The dialogues as verl's worker stores them and its engine takes them."""
    processor = hf_processor(str(folder))
    worker = SimpleNamespace(processor=processor, tokenizer=processor.tokenizer)
    ids, positions, pictures = [], [], []
    for stream in streams:
        output = SimpleNamespace(multi_modal_data={"images": stream.pil_images}, mm_processor_kwargs={})
        ids_1L = torch.tensor([stream.ids])
        inputs = AgentLoopWorker._compute_multi_modal_inputs(worker, output, ids_1L)
        positions_14L = AgentLoopWorker._compute_position_ids(worker, ids_1L, torch.ones_like(ids_1L), inputs)
        ids.append(ids_1L[0].to(device))
        positions.append(positions_14L[0].to(device))
        pictures.append({name: value.to(device) for name, value in inputs.items()})
    tensors = {
        "input_ids": torch.nested.as_nested_tensor(ids, layout=torch.jagged),
        "position_ids": torch.nested.as_nested_tensor(positions, layout=torch.jagged),
        "multi_modal_inputs": pictures,
    }
    options = {"use_remove_padding": packed, "pad_mode": DatasetPadMode.NO_PADDING, "temperature": 1.0}
    return tu.get_tensordict(tensors, options)


@torch.no_grad()
def logprobs(
    folder: Path,
    streams: Sequence[TokenStream],
    *,
    device: str,
    dtype: torch.dtype,
    packed: bool = False,
    leaking: bool = False,
) -> list[torch.Tensor]:
    """Of every response token, float32 on the host; one tensor per dialogue, all computed in one pass.

    After a packed pass the process can make no padded one. `leaking` lets packed dialogues attend to those before them.
    """
    flash = "flash_attention_2" if is_flash_attn_2_available() else packed_attention.NAME
    model: Any = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=dtype, attn_implementation=flash if packed else "sdpa"
    )
    apply_monkey_patch(model, use_remove_padding=packed)
    packed_attention.use(model)
    batch = micro_batch(folder, streams, device, packed)
    engine = SimpleNamespace(use_ulysses_sp=False, pad_to_length=False, _get_packed_pad_size=lambda length: 0)
    inputs, _ = FSDPEngineWithLMHead.prepare_model_inputs(engine, batch)
    lengths = torch.tensor([len(stream.ids) for stream in streams])
    if leaking:
        starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        inputs["position_ids"] = inputs["position_ids"] + starts.to(device)
    logits = model.eval().to(device)(**inputs, use_cache=False).logits.float()
    if packed:
        rows = logits[0].split(lengths.tolist())
    else:
        rows = [row[: len(stream.ids)] for row, stream in zip(logits, streams, strict=True)]
    found = []
    for row, stream in zip(rows, streams, strict=True):
        targets = torch.tensor(stream.ids[1:], device=device)
        chosen = row[:-1].log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
        found.append(chosen[len(stream.prompt_ids) - 1 :].cpu())
    return found


def main() -> None:
    """Command line: see the module's docstring."""
    folder, device = Path(sys.argv[1]), sys.argv[2]
    packed_attention.register()
    streams = dialogues(folder)
    found = {
        "host": logprobs(folder, streams, device="cpu", dtype=torch.float32),
        "float32": logprobs(folder, streams, device=device, dtype=torch.float32),
        "padded": logprobs(folder, streams, device=device, dtype=torch.bfloat16),
    }
    for name, leaking in (("packed", False), ("leaking", True)):
        found[name] = logprobs(folder, streams, device=device, dtype=torch.bfloat16, packed=True, leaking=leaking)
    print(json.dumps({name: [row.tolist() for row in rows] for name, rows in found.items()}))


if __name__ == "__main__":
    main()
