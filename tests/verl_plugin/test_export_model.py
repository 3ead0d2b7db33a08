"""From a checkpoint of verl's SFT trainer to a Hugging Face folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file

from tests.verl_plugin.harness import model_dir
from verl_video_tools.core.errors import UsageError
from verl_video_tools.methods import get_method
from verl_video_tools.methods.run_settings import read_run, write_run_settings
from verl_video_tools.synthetic import FAMILIES, Family
from verl_video_tools.verl_plugin.export_model import export_model, merge_adapter, restore_expert_layout

TRANSFORMERS_4 = ("transformers==4.57.6", "huggingface-hub==0.36.0", "tokenizers==0.22.1")
READS_FOLDERS = """
import sys, torch
from transformers import AutoModelForImageTextToText, AutoProcessor
for folder in sys.argv[1:]:
    processor = AutoProcessor.from_pretrained(folder)
    ids = processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "text", "text": "What is shown?"}]}],
        add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
    )["input_ids"]
    image = torch.arange(3 * 56 * 84, dtype=torch.uint8).view(3, 56, 84)
    pixels = processor.image_processor([image], return_tensors="pt")["pixel_values"]
    model = AutoModelForImageTextToText.from_pretrained(folder)
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    read = {"dtype": str(model.dtype), "ids": ids, "pixels": pixels, "logits": logits}
    torch.save(read, folder + "/read.pt")
"""


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


# ------------------------------------------------------------------------------------------------------ other software


def run_of(family: Family, folder: Path) -> Path:
    """A run of fine-tuning that has saved the tiny model, as transformers 5 writes it; its folder."""
    base = folder / "base"
    for target in (base, folder / "run" / "global_step_8" / "huggingface"):
        target.mkdir(parents=True)
        for file in Path(model_dir(family)).iterdir():
            shutil.copyfile(file, target / file.name)
    (folder / "run" / "latest_checkpointed_iteration.txt").write_text("8\n")
    rows = [str(folder / "rows" / "train.parquet")]
    write_run_settings(folder / "run", [get_method("framethinker")], {}, None, str(base), rows)
    return folder / "run"


def tie_head(checkpoint: Path) -> None:
    """Make the head of a saved model its embedding, as in Qwen2.5-VL-3B."""
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(checkpoint)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(checkpoint)


def logits(folder: Path) -> torch.Tensor:
    from transformers import AutoModelForImageTextToText

    with torch.no_grad():
        read: torch.Tensor = AutoModelForImageTextToText.from_pretrained(folder)(
            input_ids=torch.arange(20, 40)[None]
        ).logits
    return read


@pytest.mark.parametrize("family", FAMILIES)
def test_the_configuration_has_the_form_of_transformers_4_too(family: Family, tmp_path: Path) -> None:
    run = run_of(family, tmp_path)
    export_model(run, tmp_path / "model")
    text = json.loads((tmp_path / "model" / "config.json").read_text())["text_config"]
    assert {**text["rope_scaling"], "rope_theta": text["rope_theta"]} == text["rope_parameters"]
    assert torch.equal(logits(tmp_path / "model"), logits(Path(model_dir(family))))


def test_a_tied_head_is_tied_in_the_form_of_transformers_4_too(tmp_path: Path) -> None:
    run = run_of("qwen2_5_vl", tmp_path)
    tie_head(run / "global_step_8" / "huggingface")
    export_model(run, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["tie_word_embeddings"] is config["text_config"]["tie_word_embeddings"] is True
    assert "lm_head.weight" not in load_file(tmp_path / "model" / "model.safetensors")


def test_tokenizer_and_processor_are_the_base_models_own_files(tmp_path: Path) -> None:
    run = run_of("qwen2_5_vl", tmp_path)
    base = tmp_path / "base"
    own = json.loads((base / "tokenizer_config.json").read_text())
    own["additional_special_tokens"] = own.pop("extra_special_tokens")
    own["tokenizer_class"] = "PreTrainedTokenizerFast"
    (base / "tokenizer_config.json").write_text(json.dumps(own))
    (base / "added_tokens.json").write_text("{}")
    export_model(run, tmp_path / "model")
    for name in ("tokenizer_config.json", "added_tokens.json", "tokenizer.json", "processor_config.json"):
        if name != "tokenizer_config.json":
            assert (tmp_path / "model" / name).read_bytes() == (base / name).read_bytes()
    assert json.loads((tmp_path / "model" / "tokenizer_config.json").read_text()) == own


def test_a_template_that_the_run_has_changed_stays(tmp_path: Path) -> None:
    run = run_of("qwen2_5_vl", tmp_path)
    template = run / "global_step_8" / "huggingface" / "chat_template.jinja"
    template.write_text("{{ messages[0]['content'] }}")
    (tmp_path / "base" / "added_tokens.json").write_text("{}")
    export_model(run, tmp_path / "model")
    assert (tmp_path / "model" / "chat_template.jinja").read_text() == template.read_text()
    assert not (tmp_path / "model" / "added_tokens.json").exists()


def test_others_may_read_the_weights(tmp_path: Path) -> None:
    """safetensors writes files that only their owner can read."""
    former = os.umask(0o027)
    try:
        run = run_of("qwen2_5_vl", tmp_path)
        (run / "global_step_8" / "huggingface" / "model.safetensors").chmod(0o600)
        (tmp_path / "base" / "tokenizer.json").chmod(0o600)
        export_model(run, tmp_path / "model")
    finally:
        os.umask(former)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "model").rglob("*") if file.is_file()}
    assert set(modes.values()) == {0o640}, modes


def test_a_card_says_what_the_model_is(tmp_path: Path) -> None:
    run = run_of("qwen2_5_vl", tmp_path)
    export_model(run, tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    for text in (
        "| method | `framethinker` |",
        "| training | fine-tuning, 8 steps |",
        "| base model | `base` |",
        "| data | `train.parquet` |",
    ):
        assert text in card
    assert "vvt eval --method framethinker --serve . --rows" in card
    images = get_method("framethinker").recipe_budget.images
    assert f"vllm serve . --generation-config vllm --limit-mm-per-prompt '{{\"image\": {images}}}'" in card
    assert str(tmp_path) not in card


def test_a_model_that_is_published_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    run = run_of("qwen2_5_vl", tmp_path)
    export_model(run, tmp_path / "model")
    for name in ("video_tools.yaml", "README.md"):
        assert str(tmp_path) not in (tmp_path / "model" / name).read_text()
    assert read_run(run)["base_model"] == str(tmp_path / "base")


def test_a_run_of_a_former_version_is_exported_without_a_card(tmp_path: Path) -> None:
    run = run_of("qwen2_5_vl", tmp_path)
    content = OmegaConf.load(run / "video_tools.yaml")
    del content["base_model"], content["rows"]
    OmegaConf.save(content, run / "video_tools.yaml")
    export_model(run, tmp_path / "model")
    assert read_run(tmp_path / "model") == read_run(run)
    assert not (tmp_path / "model" / "README.md").exists()


@pytest.mark.parametrize("methods", [{"framethinker": {"former_name": 3}}, {"former_method": {}}])
def test_a_run_of_unknown_methods_or_fields_is_exported_without_a_card(tmp_path: Path, methods: dict[str, Any]) -> None:
    run = run_of("qwen2_5_vl", tmp_path)
    content = OmegaConf.load(run / "video_tools.yaml")
    content["methods"] = methods
    OmegaConf.save(content, run / "video_tools.yaml")
    export_model(run, tmp_path / "model")
    assert read_run(tmp_path / "model")["methods"] == methods
    assert not (tmp_path / "model" / "README.md").exists()


@pytest.mark.parametrize("damage", ["weights alone", "tokenizer alone", "damaged tokenizer"])
def test_without_a_whole_processor_of_the_base_model_verls_files_stay(tmp_path: Path, damage: str) -> None:
    run = run_of("qwen2_5_vl", tmp_path)
    for file in (tmp_path / "base").iterdir():
        is_processor = "processor" in file.name
        if file.name != "config.json" and (damage == "weights alone" or (damage == "tokenizer alone" and is_processor)):
            file.unlink()
    if damage == "damaged tokenizer":
        (tmp_path / "base" / "tokenizer_config.json").write_text("{")
    export_model(run, tmp_path / "model")
    for name in ("tokenizer.json", "processor_config.json"):
        saved = run / "global_step_8" / "huggingface" / name
        assert (tmp_path / "model" / name).read_bytes() == saved.read_bytes()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_transformers_4_reads_the_same_model(tmp_path: Path) -> None:
    """In an environment of its own beside the torch of this one."""
    if (uv := shutil.which("uv")) is None:
        pytest.skip("uv is not installed, which makes the environment with transformers 4")
    packages = tmp_path / "packages"
    install = [
        uv,
        "pip",
        "install",
        "--python",
        sys.executable,
        "--no-deps",
        "--target",
        str(packages),
        *TRANSFORMERS_4,
    ]
    made = subprocess.run(install, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"transformers 4 cannot be installed: {made.stderr.strip().splitlines()[-1]}")
    models = []
    for family, tied in product(FAMILIES, (False, True)):
        folder = tmp_path / f"{family}_{tied}"
        run = run_of(family, folder)
        if tied:
            tie_head(run / "global_step_8" / "huggingface")
        export_model(run, folder / "model")
        models.append(folder / "model")
    read: list[list[dict[str, Any]]] = []
    for path in ({}, {"PYTHONPATH": str(packages)}):
        subprocess.run([sys.executable, "-c", READS_FOLDERS, *map(str, models)], check=True, env={**os.environ, **path})
        read.append([torch.load(model / "read.pt", weights_only=True) for model in models])
    for new, old in zip(*read, strict=True):
        assert new["dtype"] == old["dtype"] == "torch.float32"
        assert torch.equal(new["ids"], old["ids"])
        assert torch.equal(new["pixels"], old["pixels"])
        torch.testing.assert_close(new["logits"], old["logits"], atol=1e-6, rtol=0)
