"""The node's actor under real Ray: shared, concurrent, killed and started again."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
import ray

from tests.services.retrieval.conftest import write_colours
from verl_video_tools.core.errors import RetrievalError, VideoNotFoundError
from verl_video_tools.services.retrieval import RetrievalConfig, local
from verl_video_tools.synthetic import clip_dir
from verl_video_tools.verl_plugin.retrieval_actor import RayRetriever

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.usefixtures("ray_session")]

SECONDS = 120.0


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("actor")
    first = write_colours(folder / "0.mp4")
    return [first, *(str(shutil.copy(first, folder / f"{number}.mp4")) for number in range(1, 8))]


async def test_two_clients_share_one_actor_and_64_queries_at_once(videos: list[str]) -> None:
    config = RetrievalConfig(model=str(clip_dir()))
    clients = RayRetriever(config), RayRetriever(config)
    queries = [
        clients[number % 2].best_frames(videos[number % 8], list(range(0, 90, 5)), f"red {number}", 4, SECONDS)
        for number in range(64)
    ]
    found = await asyncio.gather(*queries)
    in_process = local(config)
    for number in (0, 1, 9):
        expected = await in_process.best_frames(videos[number % 8], range(0, 90, 5), f"red {number}", 4, SECONDS)
        assert found[number] == expected
    first, second = (client._actor._actor_id for client in clients)
    assert first == second


async def test_errors_keep_their_type_without_the_far_sides_stack(tmp_path: Path) -> None:
    client = RayRetriever(RetrievalConfig(model=str(clip_dir())))
    with pytest.raises(VideoNotFoundError) as caught:
        await client.best_frames(str(tmp_path / "none.mp4"), [0], "red", 1, SECONDS)
    assert "Traceback" not in str(caught.value)
    with pytest.raises(RetrievalError, match=r"did not answer within|were not searched within"):
        await client.best_frames(str(tmp_path), [0], "red", 1, 0.0)


async def test_a_killed_actor_fails_the_query_and_the_next_one_starts_another(videos: list[str]) -> None:
    client = RayRetriever(RetrievalConfig(model=str(clip_dir())))
    before = await client.best_frames(videos[0], [0, 40, 70], "red", 1, SECONDS)
    killed = client._actor
    ray.kill(killed)
    with pytest.raises(RetrievalError, match="the retrieval service failed"):
        await client.best_frames(videos[0], [0, 40, 70], "red", 1, SECONDS)
    assert await client.best_frames(videos[0], [0, 40, 70], "red", 1, SECONDS) == before
    assert client._actor._actor_id != killed._actor_id


async def test_an_encoder_that_cannot_be_loaded_is_named(videos: list[str], tmp_path: Path) -> None:
    client = RayRetriever(RetrievalConfig(model=str(tmp_path / "no_model")))
    with pytest.raises(RetrievalError, match=r"could not start: UsageError: model .*no_model. is no folder here"):
        await client.best_frames(videos[0], [0], "red", 1, SECONDS)
