"""Frames by text: CLIP-like encoders behind an asynchronous service, one per node.

config.py      the options
service.py     queries: batches, embeddings in memory, ranking; `local`: the service in this process
               (`verl_plugin.retrieval_actor`: the node's, as a Ray actor)
encoders.py    what an encoder is; `load_encoder.py` loads `transformers_encoder.py` or `open_clip_encoder.py`
recorded.py    queries answered from a recorded rollout
"""

from verl_video_tools.services.retrieval.config import RetrievalConfig
from verl_video_tools.services.retrieval.recorded import (
    RecordedRetriever,
    RecordingRetriever,
    recorded_answers,
)
from verl_video_tools.services.retrieval.service import RetrievalService, local, local_from_fields

__all__ = [
    "RecordedRetriever",
    "RecordingRetriever",
    "RetrievalConfig",
    "RetrievalService",
    "local",
    "local_from_fields",
    "recorded_answers",
]
