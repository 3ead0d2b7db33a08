"""A recipe's own options on the synthetic world, as its dry run gets them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("verl", reason="a dry run composes verl's configuration")

from tests.recipes.options import compose_options, recipe_arguments
from verl_video_tools.core.check import Check
from verl_video_tools.dry_run.report import DryRun
from verl_video_tools.methods import method_class
from verl_video_tools.methods.toolkit.synthetic import write_prompt
from verl_video_tools.synthetic import base_model_dir
from verl_video_tools.verl_plugin import planned_run
from verl_video_tools.verl_plugin.planned_run import Kind

Checks = dict[str, Check]
DryRunOf = Callable[..., Checks]


@pytest.fixture(scope="session")
def recipe_options(demo_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The options of a recipe whose model is the tiny base model."""
    for method in ("framethinker", "framemind"):
        write_prompt(method_class(method), demo_dir / "prompts")

    @cache
    def options(recipe: str) -> list[str]:
        variables = {"DEVICE": "cpu", "DEMO_DIR": str(demo_dir), "MODEL_PATH": str(base_model_dir()), "DRY_RUN": "1"}
        if recipe.endswith("_sft"):
            variables["TRAIN_FILES"] = "/set/later.parquet"
        arguments = recipe_arguments(recipe, tmp_path_factory.mktemp(recipe), **variables)
        return arguments[arguments.index("--") + 1 :]

    return options


@pytest.fixture
def dry_run(recipe_options: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch) -> DryRunOf:
    """`dry_run(*options)`: the checks of FrameThinker's recipe with some more options, by name."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("verl_video_tools.dry_run.report.list_gpus", list)
    # Hydra reads verl's files once for all of these tests.
    monkeypatch.setattr(planned_run, "initialize_config_module", lambda *arguments, **options: nullcontext())
    monkeypatch.setattr(planned_run, "compose", compose_options)

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
