"""Encoders of frames and texts: CLIP, SigLIP and SigLIP2 through `transformers`, and models of `open_clip_torch`.

Axes: T frames, H height, W width, C colour channels, N texts, D dimensions of an embedding. Imports torch and
transformers: load it where an encoder is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

from verl_video_tools.core.errors import SetupError, UsageError
from verl_video_tools.core.machine import locate_model
from verl_video_tools.services.config import RetrievalConfig


def load_encoder(config: RetrievalConfig) -> TransformersEncoder | OpenCLIPEncoder:
    """The encoder of a config, with its weights, on its device. Takes seconds, and may download.

    Raises:
        SetupError: the package of the backend is missing.
        UsageError: no such model, or one that is no pair of image and text encoders.
    """
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    device = "cuda" if config.num_gpus else "cpu"
    if config.backend == "open_clip":
        return OpenCLIPEncoder(config.model, config.pretrained, device)
    return TransformersEncoder(config.model, device)


class TransformersEncoder:
    """A model with `get_image_features` and `get_text_features`, in float32.

    Args:
        model: folder or name on the Hugging Face hub.
        device: as torch names it.

    Raises:
        UsageError: the model cannot be loaded, or is none of the kind.
    """

    def __init__(self, model: str, device: str) -> None:
        source = locate_model(model)
        try:
            loaded: Any = AutoModel.from_pretrained(source, dtype=torch.float32).eval()
            self._image_processor = AutoImageProcessor.from_pretrained(source)
            self._tokenizer = AutoTokenizer.from_pretrained(source)
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(f"cannot load an encoder of images and texts from {model!r}: {error}") from error
        if not hasattr(loaded, "get_image_features") or not hasattr(loaded, "get_text_features"):
            raise UsageError(f"{model!r} is a {type(loaded).__name__}; retrieval takes a CLIP, SigLIP or SigLIP2 model")
        size = dict(self._image_processor.size or {})
        if "shortest_edge" not in size and not {"height", "width"} <= size.keys():
            raise UsageError(f"{model!r} takes images of any resolution; retrieval takes models with a fixed one")
        self.crops_centre = "shortest_edge" in size
        self._size = size
        # SigLIP learnt from lower-case texts padded to full length (Siglip2Tokenizer in transformers); CLIP ignores
        # what follows a text's end, so padding it less is merely cheaper.
        self._is_siglip = loaded.config.model_type.startswith("siglip")
        self._max_tokens = int(loaded.config.text_config.max_position_embeddings)
        self._device = device
        self._model = loaded.to(device)

    def image_size(self, width: int, height: int) -> tuple[int, int]:
        if self.crops_centre:
            return covering_size(width, height, self._size["shortest_edge"])
        return self._size["width"], self._size["height"]

    @torch.inference_mode()
    def encode_images(self, frames_THWC: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        inputs = self._image_processor(images=list(frames_THWC), input_data_format="channels_last", return_tensors="pt")
        return normalised(_features(self._model.get_image_features(inputs["pixel_values"].to(self._device))))

    @torch.inference_mode()
    def encode_texts(self, texts: list[str]) -> npt.NDArray[np.float32]:
        tokens = self._tokenizer(
            [text.lower() for text in texts] if self._is_siglip else texts,
            padding="max_length" if self._is_siglip else True,
            truncation=True,
            max_length=self._max_tokens,
            return_tensors="pt",
        )
        return normalised(_features(self._model.get_text_features(tokens["input_ids"].to(self._device))))


class OpenCLIPEncoder:
    """A pre-trained model of open_clip, in float32.

    Args:
        model: a name that open_clip knows, or one with `hf-hub:` or `local-dir:` before it.
        pretrained: tag of the weights of a known name; None for the other two.
        device: as torch names it.

    Raises:
        SetupError: open_clip is not installed.
        UsageError: there is no such model, or it cannot be had.
    """

    def __init__(self, model: str, pretrained: str | None, device: str) -> None:
        try:
            import open_clip
        except ImportError as error:
            raise SetupError(
                f"the backend open_clip is missing: uv pip install '.[retrieval]' in the checkout ({error})"
            ) from error
        try:
            loaded, self._prepare = open_clip.create_model_from_pretrained(model, pretrained)
            self._tokenize = open_clip.get_tokenizer(model)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise UsageError(f"open_clip cannot load {model!r} with weights {pretrained!r}: {error}") from error
        options = open_clip.get_model_preprocess_cfg(loaded)
        size = options["size"]
        self._height: int = size if isinstance(size, int) else size[0]
        self._width: int = size if isinstance(size, int) else size[1]
        self.crops_centre = options.get("resize_mode", "shortest") == "shortest" and self._width == self._height
        self._device = device
        self._model = loaded.eval().to(device)

    def image_size(self, width: int, height: int) -> tuple[int, int]:
        if self.crops_centre:
            return covering_size(width, height, self._height)
        return self._width, self._height

    @torch.inference_mode()
    def encode_images(self, frames_THWC: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        pixels = torch.stack([self._prepare(Image.fromarray(frame_HWC)) for frame_HWC in frames_THWC])
        return normalised(self._model.encode_image(pixels.to(self._device)))

    @torch.inference_mode()
    def encode_texts(self, texts: list[str]) -> npt.NDArray[np.float32]:
        return normalised(self._model.encode_text(self._tokenize(texts).to(self._device)))


def covering_size(width: int, height: int, side: int) -> tuple[int, int]:
    """Width and height in proportion whose shorter one is `side`; the longer one is cut off to whole pixels, as
    torchvision's `Resize` does, so that it has nothing left to do."""
    if width <= height:
        return side, int(side * height / width)
    return int(side * width / height), side


def _features(output: Any) -> torch.Tensor:
    """The projected embeddings, which some versions of transformers wrap."""
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def normalised(features: torch.Tensor) -> npt.NDArray[np.float32]:
    """Rows divided by their lengths, as NumPy on the host."""
    rows: npt.NDArray[np.float32] = (features / features.norm(dim=-1, keepdim=True)).float().cpu().numpy()
    return rows
