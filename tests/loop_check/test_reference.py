"""Plain transformers as the reference: positions as verl's workers compute them, log-probabilities as defined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from verl.utils import hf_processor

from verl_video_tools.core.errors import UsageError
from verl_video_tools.loop_check import reference
from verl_video_tools.verl_plugin.model_inputs import position_ids_4L

MODELS = Path(__file__).parents[2] / "examples" / "tiny_models"
FAMILIES = ("base", "base_qwen3")


def sequence(folder: Path) -> tuple[list[int], list[Image.Image], list[list[int]]]:
    """Text with two images of four placeholders each."""
    processor = reference.load(folder)[1]
    side = 2 * processor.image_processor.patch_size * processor.image_processor.merge_size
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)) for _ in range(2)]
    encoded = [
        processor.tokenizer.encode(text, add_special_tokens=False)
        for text in ("see <|vision_start|>", "<|vision_end|>")
    ]
    ids = 2 * [*encoded[0], *[processor.image_token_id] * 4, *encoded[1]]
    return [*ids, *processor.tokenizer.encode("B<|im_end|>")], images, [[1, 4, 4]] * 2


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_are_those_of_verls_workers(family: str) -> None:
    ids, _, grids_N3 = sequence(MODELS / family)
    processor = hf_processor(str(MODELS / family))
    expected = position_ids_4L(processor, ids, {"image_grid_thw": torch.tensor(grids_N3)})
    found = reference.position_ids_CL(MODELS / family, ids, grids_N3)
    assert found == expected.tolist()
    assert found[1] != found[0], "images take fewer positions than placeholders"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_banned_is_shared_among_the_others(family: str) -> None:
    """Every other token gains the same factor, and what is banned cannot follow."""
    folder = MODELS / family
    ids, images, _ = sequence(folder)
    processor = reference.load(folder)[1]

    def last(token: int, banned: bool) -> float:
        values = reference.token_log_probs(folder, [*ids[:-1], token], images, banned=banned)
        assert values.shape == (len(ids) - 1,)
        return float(values[-1])

    gains = [last(token, True) - last(token, False) for token in ids[-3:]]
    assert gains == pytest.approx([gains[0]] * 3, abs=1e-5) and gains[0] > 0
    assert last(processor.video_token_id, True) == -np.inf < last(processor.video_token_id, False)


def test_a_lower_temperature_sharpens() -> None:
    folder = MODELS / FAMILIES[0]
    ids, images, _ = sequence(folder)
    model, processor = reference.load(folder)
    warm, cold = (
        reference.token_log_probs(folder, ids, images, banned=False, temperature=temperature)
        for temperature in (1.0, 0.5)
    )
    pixels = processor.image_processor(images, return_tensors="pt")
    ids_1L = torch.tensor([ids])
    with torch.no_grad():
        logits = model(input_ids=ids_1L, mm_token_type_ids=(ids_1L == processor.image_token_id).int(), **pixels).logits[
            0
        ]
    for found, temperature in ((warm, 1.0), (cold, 0.5)):
        expected = (logits / temperature).log_softmax(-1)[range(len(ids) - 1), ids[1:]]
        assert found == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_sequence_without_images() -> None:
    folder = MODELS / FAMILIES[0]
    ids = reference.load(folder)[1].tokenizer.encode("only text")
    assert reference.token_log_probs(folder, ids, [], banned=True).shape == (len(ids) - 1,)
    flat = list(range(len(ids)))
    assert reference.position_ids_CL(folder, ids, []) == [flat] * 4


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no model"):
        reference.load(tmp_path)
