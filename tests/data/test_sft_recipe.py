"""The cold-start recipe for two steps with verl's real SFT trainer, up to a folder that loads like any model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from examples.tiny_models.tiny_model import Architecture, chat_template
from tests.verl_plugin.harness import model_dir
from verl_video_tools.synthetic import FAMILIES

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.recipes
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("family", "lora_rank"),
    [
        ("qwen2_5_vl", 0),
        ("qwen2_5_vl", 4),
        ("qwen3_vl", 0),
        ("qwen3_vl_moe", 0),
        ("qwen3_vl_moe", 4),
        ("qwen3_5", 0),
        ("qwen3_5", 4),
        ("qwen3_5_moe", 0),
    ],
)
def test_recipe_ends_with_a_model(demo_dir: Path, tmp_path: Path, family: Architecture, lora_rank: int) -> None:
    from transformers import AutoModelForImageTextToText
    from verl.utils import hf_processor

    prompt = demo_dir / "prompts" / "framethinker.txt"
    prompt.parent.mkdir(exist_ok=True)
    prompt.write_text("Look closely.")
    options = (
        *(() if family in FAMILIES else (f"+video_tools/model={family}_sft",)),
        # transformers cannot write the mixture's whole weights under PEFT's names, which nobody could read anyway.
        *(("checkpoint.save_contents=[model,optimizer,extra]",) if (family, lora_rank) == ("qwen3_vl_moe", 4) else ()),
        f"trainer.default_local_dir={tmp_path}",
        "trainer.total_training_steps=2",
        f"model.path={model_dir(family)}",
        f"model.lora_rank={lora_rank}",
        f"video_tools.demo_dir={demo_dir}",  # the world is there already and stays small
        "video_tools.demo.is_made=true",
        "video_tools.demo.questions_per_video=2",
        "data.train_batch_size=4",
        "optim.lr=1e-2",  # so that two steps change more than rounding to bfloat16 does
    )
    environment = {**os.environ, "DEVICE": "cpu", "PYTHON": sys.executable}
    command = ["bash", str(REPOSITORY / "recipes" / "framethinker_sft.sh"), *options]
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
