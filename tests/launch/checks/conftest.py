"""A recipe's own run on the synthetic world, as its checks get it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("verl", reason="checks of a run compose verl's configuration")

from omegaconf import DictConfig, OmegaConf

from tests.recipes.conftest import composed as composed
from tests.recipes.options import recipe_plan
from verl_video_tools.launch.checks.report import Check, PlannedRun, Status
from verl_video_tools.launch.checks.run import check_run
from verl_video_tools.methods import method_class
from verl_video_tools.methods.toolkit.oracle import write_prompt
from verl_video_tools.synthetic import base_model_dir
from verl_video_tools.verl_plugin.model_tokens import RunModel, load_run_model
from verl_video_tools.verl_plugin.run_checks import Kind, compose_run

Checks = dict[str, Check]
ChecksOf = Callable[..., Checks]


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


@pytest.fixture(scope="session")
def load_once() -> Callable[..., RunModel]:
    """`load_run_model`, which loads the same tokenizer and processor once."""
    loaded: dict[tuple[str, ...], RunModel] = {}

    def load(model: DictConfig, data: DictConfig, source: str | None = None) -> RunModel:
        names = ("mm_processor_kwargs", "apply_chat_template_kwargs")
        key = (OmegaConf.to_yaml(model), *(str(data.get(name)) for name in names), str(source))
        if key not in loaded:
            loaded[key] = load_run_model(model, data, source)
        return loaded[key]

    return load


@pytest.fixture
def checks_of(
    recipe_options: Callable[[str], tuple[str, ...]],
    load_once: Callable[..., RunModel],
    monkeypatch: pytest.MonkeyPatch,
) -> ChecksOf:
    """`checks_of(*options)`: what is found of FrameThinker's recipe with some more options, by name."""
    monkeypatch.setattr("verl_video_tools.launch.checks.run.list_gpus", list)
    monkeypatch.setattr("verl_video_tools.launch.checks.run.load_run_model", load_once)

    def checks(*options: str, recipe: str = "framethinker_grpo", **fields: Any) -> Checks:
        program: Kind = "sft" if recipe.endswith("_sft") else "grpo"
        config = compose_run(program, [*recipe_options(recipe), *options])
        run = PlannedRun(program, config, **{"device": "cpu", "thorough": True, "num_rows": 4, **fields})
        found = check_run(run).checks
        names = [check.name for check in found]
        assert len(set(names)) == len(names), "a table names each thing once"
        assert not any("not checked" in check.detail for check in found)
        return {check.name: check for check in found}

    return checks


def failed(checks: Checks) -> set[str]:
    assert all(check.fix for check in checks.values() if check.status is Status.FAILED), "a fix for each problem"
    return {name for name, check in checks.items() if check.status is Status.FAILED}


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[[list[dict[str, Any]]], str]:
    def write(rows: list[dict[str, Any]]) -> str:
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
        return str(path)

    return write
