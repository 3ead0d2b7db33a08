"""The retrieval service on a GPU: the same frames as on the CPU, in process and as the node's actor."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import numpy as np
import pytest
import ray

from tests.gpu.conftest import REPO
from tests.services.retrieval.conftest import write_colours
from verl_video_tools.services.encoders import load_encoder
from verl_video_tools.services.retrieval import RetrievalConfig, local
from verl_video_tools.synthetic import clip_dir
from verl_video_tools.verl_plugin.retrieval_actor import RayRetriever

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SECONDS = 120.0
TEXTS = ("a red circle", "a green square", "the frame with the blue cross")
CANDIDATES = list(range(0, 90, 5))


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("videos")
    first = write_colours(folder / "0.mp4")
    return [first, str(shutil.copy(first, folder / "1.mp4"))]


@pytest.fixture(scope="module")
def config(device: str) -> RetrievalConfig:
    return RetrievalConfig(model=str(clip_dir()), num_gpus=0.25 if device == "cuda" else 0.0)


@pytest.fixture
def cluster(device: str) -> Iterator[None]:
    variables = {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PATH": os.environ["PATH"]}
    num_gpus = 1 if device == "cuda" else 0
    ray.init(
        address="local",
        num_cpus=2,
        num_gpus=num_gpus,
        include_dashboard=False,
        runtime_env={"env_vars": variables},
        log_to_driver=False,
    )
    yield
    ray.shutdown()


def test_embeddings_are_those_of_the_cpu(config: RetrievalConfig) -> None:
    ours, reference = load_encoder(config), load_encoder(RetrievalConfig(model=config.model))
    frames_THWC = np.random.default_rng(0).integers(0, 256, (8, *ours.image_size(64, 64)[::-1], 3), np.uint8)
    assert np.abs(ours.encode_images(frames_THWC) - reference.encode_images(frames_THWC)).max() < 1e-3
    assert np.abs(ours.encode_texts(list(TEXTS)) - reference.encode_texts(list(TEXTS))).max() < 1e-3


async def test_the_actor_finds_the_frames_that_the_cpu_finds(
    cluster: None, config: RetrievalConfig, videos: list[str]
) -> None:
    actor, reference = RayRetriever(config), local(RetrievalConfig(model=config.model))
    for path in videos:
        for text in TEXTS:
            found = await actor.best_frames(path, CANDIDATES, text, 4, SECONDS)
            assert found == await reference.best_frames(path, CANDIDATES, text, 4, SECONDS)
    if config.num_gpus:
        taken = ray.cluster_resources()["GPU"] - ray.available_resources().get("GPU", 0.0)
        assert taken == pytest.approx(config.num_gpus)
