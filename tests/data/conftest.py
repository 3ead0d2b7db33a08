"""A small synthetic world on disk, shared by the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.data.synthetic_rows import load_rows, make_demo


@pytest.fixture(scope="session")
def demo_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten training videos with four questions each, and one test video."""
    folder = tmp_path_factory.mktemp("demo")
    return make_demo(folder, num_train_videos=10, num_test_videos=1, questions_per_video=4, seed=3, num_processes=1)


@pytest.fixture(scope="session")
def rows(demo_dir: Path) -> list[dict[str, Any]]:
    return load_rows(demo_dir / "train.parquet")
