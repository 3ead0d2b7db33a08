"""The composition `spatial` in verl's loop: pictures of one token, a zoom of four, and the cold start's same tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from verl.utils.model import extract_multi_modal_inputs

from tests.verl_plugin.harness import processor, run_loop, tokenizer
from verl_video_tools.data.sft import export_sft
from verl_video_tools.data.synthetic_rows import load_rows, make_demo
from verl_video_tools.methods import get_method
from verl_video_tools.methods.compose import Compose
from verl_video_tools.methods.toolkit.oracle import synthetic_fields
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

FIELDS = {**synthetic_fields(Compose), "file": "spatial"}


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cold start of the learning example, small."""
    folder = make_demo(tmp_path_factory.mktemp("spatial"), 2, 1, agent_names=["compose"], num_processes=1, spatial=True)
    out = folder / "sft.parquet"
    habits: dict[str, Any] = {"answers_in_words": True, "keep_wrong": True, "imperfection": 0.75, "skip_rate": 0.5}
    export_sft(folder / "train.parquet", out, questions_per_video=20, settings=FIELDS, **habits)
    return out


@pytest.mark.slow
async def test_each_kind_of_rollout_fits_and_is_the_same_in_the_cold_start(parquet: Path) -> None:
    limits = get_method("compose", **FIELDS).recipe_budget
    config = OmegaConf.create(
        {"pad_mode": "no_padding", "max_length": 1664, "video_tools": {"compose": FIELDS}, "truncation": "error"}
    )
    dataset = TrajectorySFTDataset(str(parquet), tokenizer(), config, processor())
    first = {row["template"]: index for index, row in reversed(list(enumerate(load_rows(parquet))))}
    assert set(first) == {"direct", "look", "zoom"}
    grids = {}
    for template, index in first.items():
        row = dataset.rows[index]
        rollout = await run_loop(
            row["turns"],
            row={**row, "uid": "u", "session_id": 0},
            method="compose",
            method_fields=FIELDS,
            prompt_length=limits.prompt_tokens,
            response_length=limits.response_tokens,
            max_images=limits.images,
        )
        assert rollout.trajectory.answer == row["turns"][-1].split("<answer>")[1].split("</answer>")[0]
        assert not rollout.trajectory.flags
        item = await asyncio.to_thread(dataset.__getitem__, index)
        assert item["input_ids"].tolist() == rollout.ids
        inputs, positions_4L = rollout.training_tensors()
        assert torch.equal(item["position_ids"], positions_4L)
        for name, tensor in extract_multi_modal_inputs([item["multi_modal_inputs"]]).items():
            assert torch.equal(tensor, inputs[name]), name
        grids[template] = inputs["image_grid_thw"].tolist()
    small, zoomed = [1, 2, 2], [1, 4, 4]
    assert grids == {"direct": [small] * 8, "look": [small] * 16, "zoom": [*[small] * 16, zoomed]}
