"""Ids that are made from the sizes of pictures are those that the model's own processor makes from their pixels."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from examples.tiny_models.tiny_model import Architecture
from tests.verl_plugin.harness import MODELS, model_dir
from verl_video_tools.core.types import Content, FrameRecord, ImagePart, Message, PixelEnvelope, content_images
from verl_video_tools.verl_plugin.model_tokens import load_model_tokens

texts = st.text(st.characters(codec="utf-8", exclude_characters="<|>"), max_size=12)


model = cache(load_model_tokens)


@st.composite
def contents(draw: st.DrawFn, envelope: PixelEnvelope) -> Content:
    """Texts and pictures in any order, pictures side by side among them. The processor leaves their sizes alone."""
    factor = envelope.factor
    least = math.isqrt(envelope.min_pixels - 1) // factor + 1
    cells = st.integers(least, least + 3)

    def image(columns: int, rows: int) -> ImagePart:
        width, height = columns * factor, rows * factor
        return ImagePart(FrameRecord(0, 0.0, width, height), np.full((height, width, 3), columns, np.uint8))

    return tuple(draw(st.lists(st.one_of(texts, st.builds(image, cells, cells)), min_size=1, max_size=8)))


def with_pixels(content: Content) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [
            {"type": "text", "text": part}
            if isinstance(part, str)
            else {"type": "image", "image": Image.fromarray(part.pixels_HWC)}
            for part in content
        ],
    }


@pytest.mark.slow
@pytest.mark.usefixtures("vocabulary")
@pytest.mark.parametrize(("vocabulary", "family"), MODELS, indirect=["vocabulary"])
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ids_equal_the_processors(family: Architecture, data: st.DataObject) -> None:
    tokens = model(model_dir(family))
    counter = tokens.counter
    prompt, observation = (data.draw(contents(tokens.envelope)) for _ in range(2))

    ids = counter.encode_prompt([Message("system", ("Be brief.",)), Message("user", prompt)])
    chat = [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, with_pixels(prompt)]
    images = [Image.fromarray(image.pixels_HWC) for image in content_images(prompt)]
    assert ids == list(counter.builder.build_initial_tokens(chat, images=images or None))

    for end in ([], [tokens.tokenizer.convert_tokens_to_ids("<|im_end|>")]):
        before = [*ids, *end]
        merged = counter.builder.merge_context_tokens([], [with_pixels(observation)], before)
        assert before + counter.encode_observation(before, observation) == list(merged.token_ids)
