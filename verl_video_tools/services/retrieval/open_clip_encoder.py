"""Models of the package `open_clip_torch`, such as ViT-B-16 (tag `openai`) and ViT-B-16-SigLIP2 (tag `webli`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from verl_video_tools.core.errors import SetupError, UsageError
from verl_video_tools.services.retrieval.encoders import covering_size, normalised


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
