"""The shipped base models: each loads with the ordinary classes, and sees and reads as its README says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from examples.tiny_models.evaluate import evaluate
from examples.tiny_models.frame_pool import FramePool, class_name, make_pool
from examples.tiny_models.tiny_model import TinyModel, TinyProcessor, chat_template, make_tokenizer
from verl_video_tools.synthetic import FAMILIES, Family, base_model_dir

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param


@pytest.fixture(scope="module")
def model(family: Family) -> TinyModel:
    return AutoModelForImageTextToText.from_pretrained(base_model_dir(family), dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def processor(family: Family) -> TinyProcessor:
    return AutoProcessor.from_pretrained(base_model_dir(family))


@pytest.fixture(scope="module")
def pool() -> FramePool:
    return make_pool(num_videos=6, seed=2_000_000, num_frames=200)


def test_weights_are_small_and_float32(family: Family, model: TinyModel) -> None:
    assert model.config.model_type == family
    assert (base_model_dir(family) / "model.safetensors").stat().st_size <= 8_000_000
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_template_is_the_packaged_one_and_digits_are_single_tokens(processor: TinyProcessor) -> None:
    tokenizer = processor.tokenizer
    text = "<think>between 150 and 190</think>\nframe 12: B. red circle"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert [tokenizer.decode([token]) for token in tokenizer.encode("150")] == ["1", "5", "0"]
    assert processor.chat_template == tokenizer.chat_template == chat_template()


def test_tokenizer_is_the_one_that_the_program_makes(processor: TinyProcessor) -> None:
    """Else weights made anew would not fit the tokenizer that is shipped."""
    shipped, made = processor.tokenizer, make_tokenizer()
    assert shipped.get_vocab() == made.get_vocab()
    text = "user\nWhat is shown at 1:07?\nA. red circle\nframe 250: <tool_call> [12.0, 20.5] é\n"
    assert shipped.encode(text) == made.encode(text)


def test_names_decoded_frames_through_the_ordinary_processor_and_generate(
    model: TinyModel, processor: TinyProcessor, pool: FramePool
) -> None:
    """The way of a user: chat template, processor, `generate`; one picture each, asked for by its label."""
    chosen = range(3, len(pool.frames_NHWC), 60)
    right = 0
    for number, frame in enumerate(chosen):
        question = [
            {"type": "text", "text": f"frame {100 + 7 * number}: "},
            {"type": "image"},
            {"type": "text", "text": f"\nwhat is in frame {100 + 7 * number}"},
        ]
        text = processor.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
        inputs = processor(text=[text], images=[Image.fromarray(pool.frames_NHWC[frame])], return_tensors="pt")
        written = model.generate(**inputs, max_new_tokens=16, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        expected = f"frame {100 + 7 * number} {class_name(int(pool.classes_N[frame]))}"
        right += processor.decode(written, skip_special_tokens=True) == expected
    assert right >= 0.9 * len(chosen)


def test_reaches_the_stated_accuracy(model: TinyModel, processor: TinyProcessor, pool: FramePool) -> None:
    tasks = ("list_all", "recall", "table")
    shares = evaluate(model, processor, pool, num_per_task=30, seed=1, tasks=tasks)
    # The READMEs' figures less what a sample of 30 may scatter. Guessing names 1 of 17; `table` takes every entry of a
    # table of 2 to 5, so that guessing would get 1 in 50 right throughout.
    assert shares["naming"] >= 0.9
    assert shares["copying"] >= 0.9
    assert shares["recall"] >= 0.9
    assert shares["table"] >= {"qwen2_5_vl": 0.2, "qwen3_vl": 0.1}[model.config.model_type]


def test_a_missing_base_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VVT_TINY_MODELS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="set VVT_TINY_MODELS to the folder examples/tiny_models of a checkout"):
        base_model_dir()
