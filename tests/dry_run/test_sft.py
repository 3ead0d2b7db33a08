"""The dry run of a fine-tuning recipe: rows are encoded as training would."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.dry_run.conftest import Checks, DryRunOf
from verl_video_tools.cli.main import run
from verl_video_tools.core.check import Status
from verl_video_tools.dry_run import sft_rows
from verl_video_tools.methods.toolkit.synthetic import synthetic_settings

WriteRows = Callable[[list[dict[str, Any]]], str]


@pytest.fixture(scope="session")
def sft_file(demo_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sft") / "train.parquet"
    settings = [f"--set=framethinker.{name}={value}" for name, value in SETTINGS.items()]
    assert run(["data", "export-sft", str(demo_dir / "train.parquet"), str(path), "--in-words", *settings]) == 0
    return path
