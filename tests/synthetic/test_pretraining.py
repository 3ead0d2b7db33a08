"""The parts of pre-training agree with what transformers does at run time, and training trains."""

from __future__ import annotations

import itertools
import random
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from examples.tiny_models.encoding import IGNORED, Encoder, Sequence, logits_at_targets
from examples.tiny_models.frame_pool import NOTHING, FramePool, class_name, make_pool
from examples.tiny_models.perception import (
    FRAME_NUMBERS,
    LABEL_STYLES,
    LAST_FRAME_TASKS,
    LATE_FRAME_TASKS,
    Frames,
    FrameTask,
    LabelStyle,
    Piece,
    Stage,
    frames_turn,
    opening,
    turn,
)
from examples.tiny_models.pretrain import EMBEDDING_STD, match_scales
from examples.tiny_models.tiny_model import make_model, make_processor, make_tokenizer
from examples.tiny_models.vision_pretrain import all_features, pretrain_vision
from verl_video_tools.core.types import FrameRecord, ImagePart, Sample, VideoInfo, content_text
from verl_video_tools.methods import get_method
from verl_video_tools.methods.toolkit.oracle import synthetic_fields
from verl_video_tools.synthetic import FAMILIES, Family
from verl_video_tools.synthetic.world import LABELS

TOKENIZER = make_tokenizer()
STAGE = Stage(max_frames=4, echo_share=0.1, text_share=0.3, dense_share=0.4)


@pytest.fixture(scope="module")
def pool() -> FramePool:
    return make_pool(num_videos=4, seed=3)


@pytest.mark.long
def test_pool_holds_every_class_and_is_reproducible(pool: FramePool) -> None:
    assert pool.frames_NHWC.shape == (1600, 56, 56, 3)
    assert all(len(members) for members in pool.by_class())
    once, again = (make_pool(num_videos=1, seed=3, num_frames=100) for _ in range(2))
    assert np.array_equal(once.frames_NHWC, again.frames_NHWC)
    assert np.array_equal(once.classes_N, again.classes_N)


@pytest.mark.parametrize("family", FAMILIES)
def test_scales_match(pool: FramePool, family: Family) -> None:
    model, processor = make_model(TOKENIZER, family=family), make_processor(TOKENIZER, family)
    sample = FramePool(pool.frames_NHWC[:100], pool.classes_N[:100])
    match_scales(model, processor, sample)
    spreads = [level.std().item() for level in all_features(model, processor.image_processor, sample)]
    assert len(spreads) == (3 if family == "qwen3_vl" else 1)
    spreads.append(model.model.language_model.embed_tokens.weight.std().item())
    assert spreads == pytest.approx([EMBEDDING_STD] * len(spreads), rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_the_chat_template_and_give_the_models_own_logits(pool: FramePool, family: Family) -> None:
    """Ids, positions and logits of our fast path against the processor and the whole model's forward pass."""
    encoder = Encoder(TOKENIZER, pool, seed=0)
    rng = random.Random(2)
    row = Sequence()
    encoder.append(row, opening(rng))
    encoder.append(row, frames_turn(rng, max_frames=4, dense=False))
    encoder.append(row, frames_turn(rng, max_frames=4, dense=False))
    processor = make_processor(TOKENIZER, family)
    text = TOKENIZER.decode(row.ids).replace("<|image_pad|>" * 4, "<|image_pad|>")
    inputs = processor(
        text=[text], images=[Image.fromarray(pool.frames_NHWC[frame]) for frame in row.frames], return_tensors="pt"
    )
    assert inputs["input_ids"][0].tolist() == row.ids

    model = make_model(TOKENIZER, family=family).eval()
    with torch.no_grad():
        batch = encoder.batch([row])
        features = all_features(model, processor.image_processor, pool)
        ours, wanted = logits_at_targets(model, batch, features, encoder.image_id)
        theirs = model(**inputs).logits[batch.labels_BL != IGNORED]
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert wanted.tolist() == [label for label in row.labels[1:] if label != IGNORED]


def test_padding_changes_nothing(pool: FramePool) -> None:
    encoder = Encoder(TOKENIZER, pool, seed=0)
    rng = random.Random(0)
    rows = [encoder.row(rng, length, STAGE) for length in (90, 200)]
    model = make_model(TOKENIZER).eval()
    features = all_features(model, make_processor(TOKENIZER).image_processor, pool)
    with torch.no_grad():
        together, _ = logits_at_targets(model, encoder.batch(rows), features, encoder.image_id)
        alone = [logits_at_targets(model, encoder.batch([row]), features, encoder.image_id)[0] for row in rows]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


def test_only_answers_and_dense_names_are_learnt() -> None:
    rng = random.Random(1)
    for _ in range(300):
        pieces = turn(rng, STAGE)
        for before, piece in zip([Piece(), *pieces], pieces, strict=False):
            if piece.target:
                assert before.picture is not None or before.text.endswith("<|im_end|>\n<|im_start|>assistant\n")
                assert piece.text.endswith("<|im_end|>") or before.picture is not None


@pytest.mark.parametrize("style", LABEL_STYLES, ids=lambda style: style.label)
@pytest.mark.parametrize("tasks", [LATE_FRAME_TASKS, LAST_FRAME_TASKS], ids=["late", "last"])
def test_answers_about_frames_are_true(style: LabelStyle, tasks: tuple[FrameTask, ...]) -> None:
    """Reads each answer's lines back, a frame's name and a thing, and compares them with the pictures laid out."""
    rng = random.Random(4)
    checked = 0
    for number in range(300):
        pieces = frames_turn(rng, 8, dense=False, tasks=tasks, style=style, mentions=number % 2 == 0)
        shown: dict[str, str] = {}
        for before, piece in itertools.pairwise(pieces):
            if piece.picture is not None:
                label = before.text.rsplit("time", 1)[-1]  # VideoZoomer's has another number first
                shown[_numbers(label)[-1]] = class_name(piece.picture)
        for piece in pieces:
            answer = piece.text.removesuffix("<|im_end|>")
            for line in re.split(r"\n|, (?=frame|\d)", answer) if piece.target else ():
                if match := re.fullmatch(r"(?:frame )?([\d.]+)(?: ?s)? (nothing|[a-z]+ [a-z]+)", line):
                    assert shown[match[1]] == match[2]
                    checked += 1
    assert checked > 300


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", text)


def test_mentions_do_not_tell_what_is_shown() -> None:
    """Things that are talked about are drawn without regard to the frames: seldom shown, and never learnt."""
    rng = random.Random(6)
    told = [frames_turn(rng, 4, dense=False, mentions=True) for _ in range(200)]
    plain = [frames_turn(rng, 4, dense=False) for _ in range(200)]
    things = [sum(label in pieces[0].text for label in LABELS) for pieces in told]
    assert min(things) >= 1
    assert sum(things) > 4 * sum(sum(label in pieces[0].text for label in LABELS) for pieces in plain)


def test_stages_without_a_choice_draw_the_same_random_numbers_as_ever() -> None:
    """The first rounds, of which the shipped weights come, stay reproducible when later rounds gain options."""
    rng = random.Random(7)
    text = "".join(piece.text for _ in range(50) for piece in turn(rng, STAGE))
    assert zlib.crc32(text.encode()) == 2951560554


def test_the_base_learns_nothing_of_tools_answers_or_letters() -> None:
    rng = random.Random(5)
    late = replace(STAGE, styles=LABEL_STYLES, mention_share=0.5, tasks=LATE_FRAME_TASKS)
    text = "".join(piece.text for stage in (STAGE, late) for _ in range(500) for piece in turn(rng, stage))
    for word in ("think", "action", "tool", "answer", "option", "choose", "A.", "B.", "get frame number"):
        assert word not in text


@pytest.mark.long
def test_vision_part_learns(pool: FramePool) -> None:
    entries: list[dict[str, float | int | str]] = []
    model, image_processor = make_model(TOKENIZER), make_processor(TOKENIZER).image_processor
    language = [parameter.clone() for parameter in model.model.language_model.parameters()]
    pretrain_vision(model, image_processor, pool, steps=50, seed=0, log=entries.append, batch=48)
    assert entries[-1]["step"] == 50
    assert float(entries[-1]["accuracy"]) > 3 / (NOTHING + 1)
    assert all((a == b).all() for a, b in zip(language, model.model.language_model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("method", "style"),
    [
        ("framethinker", FRAME_NUMBERS),
        ("videobrain", FRAME_NUMBERS),
        ("videozoomer", LABEL_STYLES[1]),
        ("longvt", LABEL_STYLES[2]),
        ("framemind", LABEL_STYLES[3]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_labels_practised_are_those_of_the_methods(method: str, style: LabelStyle) -> None:
    numbers, fps = (3, 51, 129), 2
    fields = synthetic_fields(type(get_method(method)))
    shown = [ImagePart(FrameRecord(number, number / fps, 56, 56)) for number in numbers]
    sample = Sample("What?", "A", "video.mp4", "mc", ("red circle", "blue ring"))
    asked = get_method(method, **fields).prompt(sample, VideoInfo(90.0, 180, float(fps), 56, 56), shown)[-1]
    practised = Frames(list(numbers), [NOTHING] * len(numbers), style, fps)
    labels = [f"{practised.label(position)}<image>" for position in range(len(numbers))]
    assert style.separator.join(labels) in content_text(asked.content)
