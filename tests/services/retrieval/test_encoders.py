"""Real encoders in miniature: the shipped CLIP, a SigLIP, and a model of open_clip. None is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from transformers import AutoProcessor, CLIPProcessor, SiglipConfig, SiglipImageProcessor, SiglipModel

from examples.tiny_models.frame_pool import NOTHING, make_pool
from examples.tiny_models.tiny_clip import PHRASES, make_tokenizer
from verl_video_tools.core.errors import UsageError
from verl_video_tools.services.encoders import TransformersEncoder, covering_size, load_encoder
from verl_video_tools.services.retrieval import Encoder, RetrievalConfig, centre_part
from verl_video_tools.synthetic import base_model_dir, clip_dir

LONG = "a red circle " * 80


@pytest.fixture(scope="module")
def clip() -> Encoder:
    return load_encoder(RetrievalConfig(model=str(clip_dir())))


def _frames(count: int, height: int, width: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def _check_lengths(encoder: Encoder) -> None:
    """Embeddings of length 1 in one space; long texts and any aspect ratio are no error."""
    width, height = encoder.image_size(640, 360)
    images = encoder.encode_images(_frames(3, height, width))
    texts = encoder.encode_texts([LONG, "red", ""])
    assert images.dtype == texts.dtype == np.float32
    assert images.shape == texts.shape
    np.testing.assert_allclose(np.linalg.norm(np.concatenate([images, texts]), axis=1), 1.0, atol=1e-5)
    # A text means the same alone and beside a longer one.
    np.testing.assert_allclose(encoder.encode_texts(["red"])[0], texts[1], atol=1e-5)


def test_shipped_clip_is_small_and_its_tokenizer_the_one_that_the_program_makes() -> None:
    assert sum(path.stat().st_size for path in clip_dir().iterdir()) <= 3_000_000
    encoder = TransformersEncoder(str(clip_dir()), "cpu")
    assert encoder._tokenizer.get_vocab() == make_tokenizer().get_vocab()
    assert type(AutoProcessor.from_pretrained(clip_dir())) is CLIPProcessor
    _check_lengths(encoder)


@pytest.mark.slow
def test_shipped_clip_tells_every_class_of_new_frames(clip: Encoder) -> None:
    pool = make_pool(num_videos=2, seed=3_000_000, num_frames=120)
    texts = clip.encode_texts([phrase for phrase, classes in PHRASES.items() if len(classes) == 1])
    guesses = np.argmax(clip.encode_images(pool.frames_NHWC) @ texts.T, axis=1)
    assert np.mean(guesses == pool.classes_N) >= 0.97
    assert NOTHING in guesses


def test_pictures_are_asked_for_as_the_encoder_takes_them(clip: Encoder) -> None:
    assert clip.image_size(640, 360) == (99, 56)
    assert clip.image_size(360, 640) == (56, 99)
    assert covering_size(1, 1, 224) == (224, 224)


def test_the_ends_of_very_elongated_frames_are_cut_off_where_only_the_centre_is_seen(clip: Encoder) -> None:
    for size in ((640, 360), (360, 640), (3840, 240), (2, 32), (1, 1)):
        assert centre_part(*size) is None
    assert centre_part(6798, 2) == (3383, 0, 3415, 2)
    assert centre_part(2, 6799) == (0, 3383, 2, 3416)  # as far from both ends
    assert clip.crops_centre
    whole_THWC = _frames(4, 20, 6000)
    left, top, right, bottom = centre_part(6000, 20) or (0, 0, 0, 0)

    def embedded(frames_THWC: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        size = clip.image_size(frames_THWC.shape[2], frames_THWC.shape[1])
        resized = [Image.fromarray(frame_HWC).resize(size, Image.Resampling.BICUBIC) for frame_HWC in frames_THWC]
        return clip.encode_images(np.stack([np.asarray(image) for image in resized]))

    part_THWC = whole_THWC[:, top:bottom, left:right]
    np.testing.assert_allclose(embedded(part_THWC), embedded(whole_THWC), atol=0.02)


def test_siglip_reads_lower_case_texts_of_full_length(tmp_path: Path) -> None:
    tower = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = SiglipConfig(
        text_config={**tower, "vocab_size": 64, "max_position_embeddings": 16, "projection_size": 32},
        vision_config={**tower, "image_size": 32, "patch_size": 16},
    )
    torch.manual_seed(0)
    SiglipModel(config).save_pretrained(tmp_path)
    SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    encoder = load_encoder(RetrievalConfig(model=str(tmp_path)))
    assert encoder.image_size(640, 360) == (32, 32)
    _check_lengths(encoder)


@pytest.mark.integration  # importing open_clip takes seconds
def test_open_clip_model_of_a_folder(tmp_path: Path) -> None:
    open_clip = pytest.importorskip("open_clip")
    model = {
        "embed_dim": 32,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 1},
    }
    torch.manual_seed(0)
    weights = open_clip.model.CLIP(**model).state_dict()
    torch.save(weights, tmp_path / "open_clip_pytorch_model.bin")

    def load(**preprocessing: Any) -> Encoder:
        settings = {"model_cfg": model, "preprocess_cfg": {"size": 32, **preprocessing}}
        (tmp_path / "open_clip_config.json").write_text(json.dumps(settings))
        return load_encoder(RetrievalConfig(backend="open_clip", model=f"local-dir:{tmp_path}"))

    encoder = load()
    assert encoder.image_size(640, 360) == (56, 32)
    _check_lengths(encoder)
    with pytest.raises(UsageError, match="open_clip cannot load 'ViT-none'"):
        load_encoder(RetrievalConfig(backend="open_clip", model="ViT-none", pretrained="webli"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "/no/such/folder"}, r"'/no/such/folder' is no folder here"),
        ({"model": str(base_model_dir())}, "retrieval takes a CLIP, SigLIP or SigLIP2 model"),
    ],
)
def test_a_model_that_cannot_be_had_is_named(fields: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_encoder(RetrievalConfig.from_fields(fields))
