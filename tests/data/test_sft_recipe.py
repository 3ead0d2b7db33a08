"""The cold-start recipe for two steps with verl's real SFT trainer, up to a folder that loads like any model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from examples.tiny_models.tiny_model import chat_template
from tests.verl_plugin.harness import model_dir
from verl_video_tools.synthetic import Family

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.recipes
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("family", "lora_rank"), [("qwen2_5_vl", 0), ("qwen2_5_vl", 4), ("qwen3_vl", 0)])
def test_recipe_ends_with_a_model(demo_dir: Path, tmp_path: Path, family: Family, lora_rank: int) -> None:
    from transformers import AutoModelForImageTextToText
    from verl.utils import hf_processor

    # The interpreter's folder, where the recipe also finds `vvt`: the world is there already and must stay small.
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in {
        "python": f'exec {sys.executable} "$@"',
        "vvt": f'[ "$1" = demo ] || exec {sys.executable} -m verl_video_tools.cli "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)
    prompt = demo_dir / "prompts" / "framethinker.txt"
    prompt.parent.mkdir(exist_ok=True)
    prompt.write_text("Look closely.")
    environment = {
        **os.environ,
        "DEVICE": "cpu",
        "PYTHON": str(programs / "python"),
        "DEMO_DIR": str(demo_dir),
        "SFT_DIR": str(tmp_path),
        "MODEL_PATH": model_dir(family),
        "LORA_RANK": str(lora_rank),
        "QUESTIONS_PER_VIDEO": "2",
        "TRAIN_BATCH_SIZE": "4",
        "MICRO_BATCH_SIZE": "4",
        "LEARNING_RATE": "1e-2",  # so that two steps change more than rounding to bfloat16 does
    }
    command = ["bash", str(REPOSITORY / "recipes" / "framethinker_sft.sh"), "trainer.total_training_steps=2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "step:2 - " in (tmp_path / "run.log").read_text()

    folder = tmp_path / "huggingface"
    base = AutoModelForImageTextToText.from_pretrained(model_dir(family), dtype="auto")
    tuned = AutoModelForImageTextToText.from_pretrained(folder, dtype="auto")
    assert lora_rank or tuned.dtype == torch.float32
    assert tuned.generation_config.eos_token_id == base.generation_config.eos_token_id
    before, after = base.state_dict(), tuned.state_dict()
    assert before.keys() == after.keys()
    changed = [name for name in before if not torch.allclose(before[name].float(), after[name].float(), atol=2e-3)]
    assert any("q_proj" in name for name in changed)
    processor = hf_processor(str(folder))
    assert processor.chat_template == chat_template()
    assert processor.tokenizer.get_vocab() == hf_processor(model_dir(family)).tokenizer.get_vocab()
