"""A dialogue of two sampled turns with pictures between them, by real vLLM, against transformers and verl's actor.

    VERL_PLATFORM=cpu python -m tests.integration.dialogue MODEL_DIR [MM_PROCESSOR_KWARGS [DTYPE]]

The second argument, a JSON object, is what `data.mm_processor_kwargs` is in a run; the third the engine's dtype, by
default float32.

Prints one JSON object: width and height of the pictures in pixels, number of sampled tokens before and after the first
observation picture, and for every comparison the largest differences of their log-probabilities, and under `means` the
mean ones. The tokens are built as in a rollout, verl's side is computed by verl's own code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import torch
from PIL import Image
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.models.transformers.monkey_patch import apply_monkey_patch
from verl.utils import hf_processor, hf_tokenizer
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder
from verl.workers.rollout.utils import qwen2_5_vl_dedup_image_tokens

from examples.tiny_models.evaluate import VALIDATION_SEED
from examples.tiny_models.frame_pool import make_pool
from tests.integration.parity import Fault, load, sequence_logprobs
from verl_video_tools.core.types import Content, FrameRecord, ImagePart, Message
from verl_video_tools.rollout.tokens import (
    TokenCounter,
    TokenStream,
    check_invariants,
    processor_token_counts,
)
from verl_video_tools.video import envelope_of, fit_envelope

MAX_IMAGES = 16
TURN_TOKENS = 24


def messages(processor: Any, mm_processor_kwargs: dict[str, Any]) -> tuple[Content, Content]:
    """A question with four labelled frames, and an observation with three more, sized for the model's processor."""
    frames = make_pool(num_videos=1, seed=VALIDATION_SEED, num_frames=140).frames_NHWC[::20]
    width, height = fit_envelope(frames.shape[2], frames.shape[1], envelope_of(processor, mm_processor_kwargs))
    content: list[str | ImagePart] = []
    for number, frame in enumerate(frames):
        picture = np.asarray(Image.fromarray(frame).resize((width, height)))
        record = FrameRecord(20 * number, 4.0 * number, width, height)
        content += [f"\nframe {20 * number}: ", ImagePart(record, picture)]
    return (*content[:8], "\nwhat is shown"), (*content[8:], "\nlist all frames")


def roll_out(folder: Path, processor: Any, mm_processor_kwargs: dict[str, Any], dtype: str) -> TokenStream:
    """Two turns sampled by vLLM, with an observation between them whatever the first turn says."""
    from vllm import LLM, SamplingParams

    tokenizer = hf_tokenizer(str(folder))
    builder = create_continuous_token_builder(
        tokenizer,
        hf_model_type=processor.config.model_type,
        mm_processor_kwargs=mm_processor_kwargs,
        processor=processor,
    )
    end_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    engine = LLM(
        str(folder),
        dtype=dtype,
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=4,
        limit_mm_per_prompt={"image": MAX_IMAGES, "video": 0},  # without: it warms up on long videos
        logprobs_mode="processed_logprobs",  # as verl sets it
        seed=0,
    )
    question, observation = messages(processor, mm_processor_kwargs)
    stream = TokenStream(
        TokenCounter(builder, processor.image_token_id, envelope_of(processor, mm_processor_kwargs).factor)
    )
    stream.start([Message("user", question)])
    for turn in range(2):
        if turn:
            stream.append_observation(observation, end_id)
        request = {
            "prompt_token_ids": qwen2_5_vl_dedup_image_tokens(stream.ids, processor),
            "multi_modal_data": {"image": stream.pil_images},
            "mm_processor_kwargs": mm_processor_kwargs,
        }
        sampling = SamplingParams(temperature=1.0, max_tokens=TURN_TOKENS, ignore_eos=True, logprobs=0, seed=turn)
        written = engine.generate([request], sampling, use_tqdm=False)[0].outputs[0]
        chosen = [entry[token].logprob for token, entry in zip(written.token_ids, written.logprobs, strict=True)]
        stream.append_turn(list(written.token_ids), chosen)
    check_invariants(
        stream,
        processor.image_token_id,
        processor_token_counts(processor.image_processor, stream.images, mm_processor_kwargs),
    )
    return stream


@torch.no_grad()
def actor_logprobs(
    folder: Path, processor: Any, stream: TokenStream, mm_processor_kwargs: dict[str, Any]
) -> np.ndarray:
    """Of every response token, with the forward pass that verl patches in and the inputs that its worker computes."""
    model, _ = load(folder)
    apply_monkey_patch(model, use_remove_padding=False)
    worker = SimpleNamespace(processor=processor, tokenizer=processor.tokenizer)
    output = SimpleNamespace(multi_modal_data={"images": stream.pil_images}, mm_processor_kwargs=mm_processor_kwargs)
    ids_1L = torch.tensor([stream.ids])
    mask_1L = torch.ones_like(ids_1L)
    inputs = AgentLoopWorker._compute_multi_modal_inputs(worker, output, ids_1L)
    positions_14L = AgentLoopWorker._compute_position_ids(worker, ids_1L, mask_1L, inputs)
    logits = model(
        input_ids=ids_1L, attention_mask=mask_1L, position_ids=positions_14L.transpose(0, 1), use_cache=False, **inputs
    ).logits[0]
    logprobs = logits.log_softmax(-1)[:-1].gather(1, ids_1L[0, 1:, None]).squeeze(1)
    return logprobs[len(stream.prompt_ids) - 1 :].numpy()


def main() -> None:
    """Command line: see the module's docstring."""
    folder = Path(sys.argv[1])
    mm_processor_kwargs = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    processor = hf_processor(str(folder))
    stream = roll_out(folder, processor, mm_processor_kwargs, sys.argv[3] if len(sys.argv) > 3 else "float32")
    engine = np.array(stream.response_logprobs)
    sampled = np.array(stream.response_mask, bool)
    observed = np.cumsum(np.array(stream.response_ids) == processor.image_token_id) > 0
    sides = (sampled & ~observed, sampled & observed)

    def apart(one: np.ndarray, other: np.ndarray, by: Callable[..., Any] = np.nanmax) -> list[float]:
        return [float(by(np.abs(one - other)[side])) for side in sides]

    def plain(fault: Fault | None = None) -> np.ndarray:
        return sequence_logprobs(
            folder, stream.prompt_ids, stream.response_ids, stream.pil_images, False, fault, mm_processor_kwargs
        )

    shown = stream.images[0].record
    reference = plain()
    others = {"engine": reference, **{fault: plain(fault) for fault in get_args(Fault)}}
    result: dict[str, Any] = {
        "pixels": [shown.width, shown.height],
        "tokens": [int(side.sum()) for side in sides],
        **{name: apart(engine, other) for name, other in others.items()},
        "means": {name: apart(engine, other, np.nanmean) for name, other in others.items()},
    }
    actor = actor_logprobs(folder, processor, stream, mm_processor_kwargs)  # last: it patches transformers
    print(json.dumps({**result, "actor": apart(actor, reference)}))


if __name__ == "__main__":
    main()
