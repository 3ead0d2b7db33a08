"""The tap between a loop and the engine, with an engine that repeats itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from verl.workers.rollout.replica import TokenOutput

from tests.loop_check.test_faults import IMAGE, tokens
from verl_video_tools.loop_check.client import TappedClient, TappedRollout, running
from verl_video_tools.loop_check.faults import FAULTS, Fault, Tokens
from verl_video_tools.loop_check.images import given_images, row_images
from verl_video_tools.loop_check.records import TapFolder, read_rollouts
from verl_video_tools.verl_plugin.agent_loop_worker import IMAGE_PARTS
from verl_video_tools.verl_plugin.sent_images import SentImages, image_name

PIXELS = [np.full((28, 28, 3), 50 * i, dtype=np.uint8) for i in range(3)]
NAMES = [image_name(pixels_HWC) for pixels_HWC in PIXELS]
PROMPT = [1, 2, IMAGE, 3, 2, IMAGE, 3, 2, IMAGE, 3]


class Reference:
    """A reference to images in an object store."""

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return PIXELS


class Engine:
    """Keeps what it was asked, and always says the same."""

    other = "attribute"

    def __init__(self, output: TokenOutput) -> None:
        self.asked: list[dict[str, Any]] = []
        self.output = output

    async def generate(self, request_id: str, **request: Any) -> TokenOutput:
        self.asked.append({"request_id": request_id, **request})
        return self.output


def output(log_probs: list[float] | None = None, **versions: Any) -> TokenOutput:
    ids = tokens().tokenizer.encode("The red circle<|im_end|>", add_special_tokens=False)
    return TokenOutput(
        token_ids=ids, log_probs=[-0.5] * len(ids) if log_probs is None else log_probs, extra_fields=versions
    )


async def generate(engine: Engine, folder: Path, fault: str | None, image_data: list[Any] | None) -> TokenOutput:
    client = TappedClient(engine, TapFolder(folder), Tokens(IMAGE, tokens().tokenizer))
    assert client.other == "attribute"
    plants = FAULTS[fault] if fault else Fault()
    running.set(TappedRollout("g", 2, 1, "my_loop", fault, plants))
    return await client.generate(
        request_id="r", prompt_ids=PROMPT, sampling_params={"n": 1}, image_data=image_data, video_data=None
    )


SENT = [SentImages(Reference(), 0, tuple(NAMES[:1])), SentImages(Reference(), 1, tuple(NAMES[1:]))]
PIL = [Image.fromarray(pixels_HWC) for pixels_HWC in PIXELS]


@pytest.mark.parametrize("image_data", [SENT, PIL])
async def test_a_clean_request_goes_on_as_it_came(image_data: list[Any], tmp_path: Path) -> None:
    engine = Engine(output(global_steps=3))
    answer = await generate(engine, tmp_path, None, image_data)
    assert answer is engine.output
    (asked,) = engine.asked
    assert asked["image_data"] is image_data and asked["prompt_ids"] is PROMPT
    assert asked["sampling_params"] == {"n": 1} and "video_data" in asked and asked["request_id"] == "r"
    (line,) = read_rollouts(tmp_path)[0].generations
    assert (line.given_ids, line.images, line.returned_ids) == (PROMPT, NAMES, answer.token_ids)
    assert (line.log_probs, line.version, line.planted) == (answer.log_probs, 3, False)
    assert len(list((tmp_path / "images").iterdir())) == 3


@pytest.mark.parametrize("image_data", [SENT, PIL])
async def test_images_are_handed_on_one_by_one(image_data: list[Any], tmp_path: Path) -> None:
    engine = Engine(output())
    await generate(engine, tmp_path, "wrong_order", image_data)
    found = [image.name for image, _ in await given_images(engine.asked[0]["image_data"])]
    assert found == [NAMES[1], NAMES[0], NAMES[2]]
    (line,) = read_rollouts(tmp_path)[0].generations
    assert line.images == found and line.planted


async def test_the_tap_does_not_see_a_stale_cache(tmp_path: Path) -> None:
    engine = Engine(output())
    await generate(engine, tmp_path, "stale_encoder_cache", SENT)
    assert [image.names for image in engine.asked[0]["image_data"]] == [(NAMES[0],)] * 3
    assert read_rollouts(tmp_path)[0].generations[0].images == NAMES


async def test_a_missing_image(tmp_path: Path) -> None:
    engine = Engine(output())
    await generate(engine, tmp_path, "missing_image", PIL)
    assert engine.asked[0]["prompt_ids"] == [1, 2, IMAGE, 3, 2, IMAGE, 3, 2, 3]
    assert len(engine.asked[0]["image_data"]) == 2
    assert read_rollouts(tmp_path)[0].generations[0].given_ids == engine.asked[0]["prompt_ids"]


async def test_the_loop_gets_other_tokens_than_the_engine_returned(tmp_path: Path) -> None:
    engine = Engine(output())
    answer = await generate(engine, tmp_path, "retokenised_text", None)
    assert answer.token_ids != engine.output.token_ids and len(answer.log_probs) == len(answer.token_ids)
    (line,) = read_rollouts(tmp_path)[0].generations
    assert line.returned_ids == engine.output.token_ids and line.planted


async def test_the_engine_returns_a_placeholder(tmp_path: Path) -> None:
    answer = await generate(Engine(output()), tmp_path, "sampled_placeholder", None)
    assert answer.token_ids[1] == IMAGE
    assert read_rollouts(tmp_path)[0].generations[0].returned_ids == answer.token_ids


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({}, None),
        ({"global_steps": 2}, 2),
        ({"global_steps": 2, "min_global_steps": 2, "max_global_steps": 2}, 2),
        ({"global_steps": 2, "min_global_steps": 1, "max_global_steps": 2}, None),
    ],
)
async def test_versions(versions: dict[str, int], expected: int | None, tmp_path: Path) -> None:
    await generate(Engine(output(**versions)), tmp_path, None, None)
    assert read_rollouts(tmp_path)[0].generations[0].version == expected


async def test_validation_is_not_tapped(tmp_path: Path) -> None:
    engine = Engine(output())
    running.set(None)
    client = TappedClient(engine, TapFolder(tmp_path), tokens())
    assert await client.generate("r", prompt_ids=PROMPT, sampling_params={}) is engine.output
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


def test_images_of_a_row() -> None:
    from verl_video_tools.core.types import FrameRecord, ImagePart

    parts = [ImagePart(FrameRecord(i, float(i), 28, 28), pixels) for i, pixels in enumerate(PIXELS)]
    for data in ({"images": PIL}, {IMAGE_PARTS: parts}):
        assert [name for name, _ in row_images(data, IMAGE_PARTS)] == NAMES
    assert row_images(None, IMAGE_PARTS) == row_images({"images": None}, IMAGE_PARTS) == []


def test_lines_are_json(tmp_path: Path) -> None:
    asyncio.run(generate(Engine(output()), tmp_path, None, PIL))
    (path,) = tmp_path.glob("generations-*.jsonl")
    assert set(json.loads(path.read_text())) >= {"given_ids", "images", "returned_ids", "log_probs", "version"}
