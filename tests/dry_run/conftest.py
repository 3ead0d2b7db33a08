"""A recipe's own options on the synthetic world, as its dry run gets them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("verl", reason="a dry run composes verl's configuration")

from tests.recipes.options import recipe_plan
from verl_video_tools.core.check import Check
from verl_video_tools.dry_run.report import DryRun
from verl_video_tools.methods import method_class
from verl_video_tools.methods.toolkit.oracle import write_prompt
from verl_video_tools.synthetic import base_model_dir
from verl_video_tools.verl_plugin.planned_run import Kind

Checks = dict[str, Check]
DryRunOf = Callable[..., Checks]


@pytest.fixture(scope="session")
def recipe_options(demo_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[str, ...]]:
    """The options of a recipe whose model is the tiny base model."""
    for method in ("framethinker", "framemind"):
        write_prompt(method_class(method), demo_dir / "prompts")

    @cache
    def options(recipe: str) -> tuple[str, ...]:
        section = "model" if recipe.endswith("_sft") else "actor_rollout_ref.model"
        given = [f"video_tools.demo_dir='{demo_dir}'", f"{section}.path='{base_model_dir()}'"]
        if recipe.endswith("_sft"):
            given.append("data.train_files=/set/later.parquet")
        return recipe_plan(recipe, tmp_path_factory.mktemp(recipe), *given, DEVICE="cpu").overrides

    return options


@pytest.fixture
def dry_run(recipe_options: Callable[[str], tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> DryRunOf:
    """`dry_run(*options)`: the checks of FrameThinker's recipe with some more options, by name."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("verl_video_tools.dry_run.report.list_gpus", list)

    def checks(*options: str, recipe: str = "framethinker_grpo", num_rows: int = 4, **fields: Any) -> Checks:
        kind: Kind = "sft" if recipe.endswith("_sft") else "grpo"
        run = DryRun(kind, [*recipe_options(recipe), *options], fields.pop("device", "cpu"), num_rows, **fields)
        found = run.checks()
        names = [check.name for check in found]
        assert len(set(names)) == len(names), "a table names each thing once"
        return {check.name: check for check in found}

    return checks


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[[list[dict[str, Any]]], str]:
    def write(rows: list[dict[str, Any]]) -> str:
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
        return str(path)

    return write
