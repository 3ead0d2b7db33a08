"""What holds for all tests: one thread, no network, no surprise deadlines; GPU tests only where there is a GPU.

Markers and the rule that any warning fails a test stand in pyproject.toml, each exception with its reason. Tests that
need Chromium are skipped without it, or fail with VVT_REQUIRE_CHROMIUM=1 (`tests/records/conftest.py`).
"""

from __future__ import annotations

import copy
import gc
import io
import os
import signal
import time
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from tests.context_method import NAME, PATH
from tests.group_method import NAME as GROUP_NAME
from tests.group_method import PATH as GROUP_PATH
from tests.videos.files import MakeVideo, write_grey
from verl_video_tools import methods
from verl_video_tools.services import endpoint

pytest_plugins = ["tests.hard_limit", "tests.order"]

# Before torch is imported anywhere: many small tests share few cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Models of the tests lie on disk; a look-up over the network would only make them slow or flaky.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

os.environ.setdefault("VVT_FRAME_CACHE_BYTES", str(64 << 20))

# A suite in the background of a script ignores SIGINT, one under nohup SIGHUP, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Examples run on shared machines: wall-clock time per example says nothing about the code. The same examples in every
# run, so that a change is to blame for a failure; `--hypothesis-profile=explore` draws others.
settings.register_profile("explore", deadline=None, print_blob=True)
settings.register_profile("shared_machine", settings.get_profile("explore"), derandomize=True)
settings.load_profile("shared_machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where torch sees none, unless told to run them on another device (`tests/gpu`)."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked or "VVT_TEST_DEVICE" in os.environ:
        return
    import torch

    if not torch.cuda.is_available():
        reason = "needs a CUDA device: torch.cuda.is_available() is False (`vvt doctor` tells more)"
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)  # before fixtures start a run
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test marked `long` after the time VVT_TEST_DEADLINE, in seconds since the epoch (`.ci/run` sets it)."""
    deadline = os.environ.get("VVT_TEST_DEADLINE")
    if deadline and item.get_closest_marker("long") and time.time() > float(deadline):
        pytest.skip("left out: no time is left before VVT_TEST_DEADLINE")


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Hydra reads some fifty files for each configuration. Their parsing, a third of its time, is done once."""
    load, parsed = yaml.load, dict[str, Any]()

    def load_once(stream: Any, Loader: Any) -> Any:
        if Loader.__name__ != "OmegaConfLoader" or not hasattr(stream, "read"):
            return load(stream, Loader)
        text = stream.read()
        if text not in parsed:
            again: Any = io.StringIO(text)
            again.name = getattr(stream, "name", "<file>")  # which errors name
            parsed[text] = load(again, Loader)
        return copy.deepcopy(parsed[text])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "load", load_once)
        yield


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not look at verl's and torch's objects a hundred times."""
    gc.freeze()


@pytest.fixture
def context_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the method of `tests.context_method` known for one test."""
    monkeypatch.setitem(methods.REGISTERED, NAME, PATH)


@pytest.fixture
def group_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the method of `tests.group_method` known for one test."""
    monkeypatch.setitem(methods.REGISTERED, GROUP_NAME, GROUP_PATH)


@pytest.fixture(params=["home-made", "released"])
def vocabulary(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test twice: with the tiny models of `tests.verl_plugin.harness`, and with released vocabularies."""
    from tests.released_models import vocabulary_dir
    from tests.verl_plugin.harness import using_vocabulary

    if request.param == "released":  # skipped here where there is none
        vocabulary_dir("qwen2_5_vl"), vocabulary_dir("qwen3_vl")
    with using_vocabulary(request.param):
        yield


@pytest.fixture(scope="session")
def make_video(tmp_path_factory: pytest.TempPathFactory) -> MakeVideo:
    """Grey videos by number of frames, rate and size; each is written once."""
    folder = tmp_path_factory.mktemp("videos")

    @cache
    def make(num_frames: int = 3000, fps: Fraction = Fraction(30), width: int = 64, height: int = 36) -> str:
        path = folder / f"{num_frames}_{fps.numerator}_{fps.denominator}_{width}x{height}.mp4"
        write_grey(path, num_frames, fps, width, height)
        return str(path)

    return make


@pytest.fixture
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests whose server fails: clients ask it again at once, and are soon sure that none is there."""
    base_client = pytest.importorskip("openai._base_client", reason="the extra `judge` is not installed")
    monkeypatch.setattr(base_client, "INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr(base_client, "MAX_RETRY_DELAY", 0.1)
    monkeypatch.setattr(endpoint, "BROKEN_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(endpoint, "REACH_SECONDS", 0.3)


@pytest.fixture(scope="session")
def demo_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten training videos with four questions each, and one test video."""
    from verl_video_tools.data.synthetic_rows import make_demo

    folder = tmp_path_factory.mktemp("demo")
    return make_demo(folder, num_train_videos=10, num_test_videos=1, questions_per_video=4, seed=3, num_processes=1)


@pytest.fixture(scope="session")
def rows(demo_dir: Path) -> list[dict[str, Any]]:
    from verl_video_tools.data.synthetic_rows import load_rows

    return load_rows(demo_dir / "train.parquet")
