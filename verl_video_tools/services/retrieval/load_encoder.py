"""Load the encoder that a config names; each backend is imported only where it is asked for."""

from __future__ import annotations

from verl_video_tools.services.retrieval.config import RetrievalConfig
from verl_video_tools.services.retrieval.encoders import Encoder


def load_encoder(config: RetrievalConfig) -> Encoder:
    """The encoder of a config, with its weights, on its device. Takes seconds, and may download.

    Raises:
        SetupError: the package of the backend is missing.
        UsageError: no such model, or one that is no pair of image and text encoders.
    """
    if config.num_threads is not None:
        import torch

        torch.set_num_threads(config.num_threads)
    device = "cuda" if config.num_gpus else "cpu"
    if config.backend == "open_clip":
        from verl_video_tools.services.retrieval.open_clip_encoder import OpenCLIPEncoder

        return OpenCLIPEncoder(config.model, config.pretrained, device)
    from verl_video_tools.services.retrieval.transformers_encoder import TransformersEncoder

    return TransformersEncoder(config.model, device)
