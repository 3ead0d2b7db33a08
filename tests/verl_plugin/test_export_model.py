"""From a checkpoint of verl's SFT trainer to a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.verl_plugin.harness import model_dir
from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.export_model import export_model, merge_adapter, restore_expert_layout


def fake_checkpoint(folder: Path, step: int) -> Path:
    checkpoint = folder / f"global_step_{step}" / "huggingface"
    checkpoint.mkdir(parents=True)
    save_file({"weight": torch.full((2,), float(step))}, checkpoint / "model.safetensors")
    sections: dict[str, Any] = {"dtype": "bfloat16", "text_config": {"dtype": "bfloat16"}, "other": {}}
    sections["attn_implementation"] = "packed_by_torch"  # of the run, and not of the model
    (checkpoint / "config.json").write_text(json.dumps(sections))
    (folder / "latest_checkpointed_iteration.txt").write_text(f"{step}\n")
    return checkpoint


def test_whole_weights_of_the_last_step_are_copied(tmp_path: Path) -> None:
    fake_checkpoint(tmp_path, 4)
    last = fake_checkpoint(tmp_path, 8)
    out = tmp_path / "huggingface"
    out.mkdir()
    (out / "config.json").write_text("{}")
    (out / "stale.txt").write_text("of an earlier run")
    assert export_model(tmp_path, out) == last.parent
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    assert (out / "model.safetensors").read_bytes() == (last / "model.safetensors").read_bytes()
    declared = json.loads((out / "config.json").read_text())  # what verl wrote beside float32 weights was not true
    assert declared == {"dtype": "float32", "text_config": {"dtype": "float32"}, "other": {}}


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (".", "holds the run itself"),
        ("..", "holds the run itself"),
        ("link_to_run", "holds the run itself"),
        ("global_step_8", "part of the checkpoint global_step_8"),
        ("global_step_8/huggingface", "part of the checkpoint global_step_8"),
        ("trajectories", "is no model"),
        ("latest_checkpointed_iteration.txt", "is no model"),
    ],
)
def test_nothing_but_a_model_is_replaced(tmp_path: Path, place: str, message: str) -> None:
    run_dir = tmp_path / "run"
    fake_checkpoint(run_dir, 8)
    (run_dir / "trajectories").mkdir()
    (run_dir / "trajectories" / "step_1.jsonl").write_text("{}")
    (run_dir / "link_to_run").symlink_to(run_dir)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=message):
        export_model(run_dir, run_dir / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_folder_and_a_link_to_a_model_are_filled(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    fake_checkpoint(run_dir, 8)
    (tmp_path / "model").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "model")
    for place in ("model", "link", "new"):
        export_model(run_dir, tmp_path / place)
        assert (tmp_path / place / "model.safetensors").is_file()
    assert (tmp_path / "link").is_symlink()


def peft_checkpoint(folder: Path) -> Path:
    """As verl writes it where LoRA is trained and `hf_model` is saved."""
    checkpoint = fake_checkpoint(folder, 8)
    names = ("q_proj.base_layer.weight", "q_proj.lora_A.default.weight", "q_proj.lora_B.default.weight")
    prefix = "base_model.model.model.layers.0.self_attn"
    save_file({f"{prefix}.{name}": torch.zeros(2, 2) for name in names}, checkpoint / "model.safetensors")
    return checkpoint.parent


def test_weights_with_the_names_of_peft_are_merged_from_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = peft_checkpoint(tmp_path)
    (checkpoint / "model_world_size_1_rank_0.pt").touch()
    commands = []

    def merge(command: list[str], check: bool) -> None:
        commands.append(command)
        out = Path(command[command.index("--target_dir") + 1])
        out.mkdir()
        (out / "config.json").write_text("{}")
        save_file({"merged": torch.zeros(2)}, out / "model.safetensors")

    monkeypatch.setattr("subprocess.run", merge)
    assert export_model(tmp_path, tmp_path / "huggingface") == checkpoint
    (command,) = commands
    assert command[command.index("--local_dir") + 1] == str(checkpoint)
    assert list(load_file(tmp_path / "huggingface" / "model.safetensors")) == ["merged"]


def test_weights_with_the_names_of_peft_alone_are_refused(tmp_path: Path) -> None:
    peft_checkpoint(tmp_path)
    with pytest.raises(UsageError, match=r"not merged \(weight '.*base_layer.*'model' in checkpoint\.save_contents"):
        export_model(tmp_path, tmp_path / "huggingface")
    assert not (tmp_path / "huggingface").exists()


def test_unfinished_run_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no finished checkpoint"):
        export_model(tmp_path, tmp_path / "huggingface")


def test_adapter_is_merged_into_the_weights(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText, AutoProcessor

    base = AutoModelForImageTextToText.from_pretrained(model_dir(), dtype=torch.float32)
    base.save_pretrained(tmp_path)
    AutoProcessor.from_pretrained(model_dir()).save_pretrained(tmp_path)
    torch.manual_seed(0)
    adapted = get_peft_model(base, LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "lora_adapter")
    ids = torch.arange(20, 40)[None]
    with torch.no_grad():
        expected = adapted(input_ids=ids).logits
        plain = AutoModelForImageTextToText.from_pretrained(model_dir(), dtype=torch.float32)(input_ids=ids).logits
    merge_adapter(tmp_path)
    with torch.no_grad():
        merged = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32)(input_ids=ids).logits
    assert not torch.allclose(plain, expected, atol=1e-3)
    torch.testing.assert_close(merged, expected, atol=1e-4, rtol=1e-4)
    assert not (tmp_path / "lora_adapter").exists()
    assert (tmp_path / "tokenizer.json").exists()


def test_experts_get_the_layout_that_vllm_reads(tmp_path: Path) -> None:
    """As soon as transformers saves them like this itself, `restore_expert_layout` can go."""
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(model_dir("qwen3_vl_moe"), dtype=torch.float32)
    model.save_pretrained(tmp_path)
    file, prefix = tmp_path / "model.safetensors", "model.language_model.layers.0.mlp.experts"
    shapes = {"gate_up_proj": (4, 2 * 96, 128), "down_proj": (4, 128, 96)}
    assert {name: load_file(file)[f"{prefix}.{name}"].shape for name in shapes} == shapes, "the fault is gone"
    for _ in range(2):  # the second time there is nothing to do
        restore_expert_layout(tmp_path)
        weights = load_file(file)
        assert {name: weights[f"{prefix}.{name}"].transpose(1, 2).shape for name in shapes} == shapes
    again = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
