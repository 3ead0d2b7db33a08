"""Frames by text: CLIP-like encoders behind an asynchronous service, one per node.

config.py      the options
client.py      `connect` (the node's Ray actor) and `local` (in this process)
actor.py       the Ray actor
service.py     queries: batches, caches, ranking
batcher.py     texts of concurrent queries, encoded together
embeddings.py  what is known of videos, in memory and on disk
encoders.py    what an encoder is; `transformers_encoder.py` and `open_clip_encoder.py` are the two
recorded.py    queries answered from a recorded rollout
"""

from verl_video_tools.retrieval.client import RayRetriever, connect, local, local_from_fields
from verl_video_tools.retrieval.config import RetrievalConfig
from verl_video_tools.retrieval.recorded import RecordedRetriever, RecordingRetriever, recorded_answers
from verl_video_tools.retrieval.service import RetrievalService, RetrievalStats

__all__ = [
    "RayRetriever",
    "RecordedRetriever",
    "RecordingRetriever",
    "RetrievalConfig",
    "RetrievalService",
    "RetrievalStats",
    "connect",
    "local",
    "local_from_fields",
    "recorded_answers",
]
