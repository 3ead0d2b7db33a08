"""The last checkpoint of a run as one Hugging Face folder: weights, configuration, tokenizer, processor, template.

    python -m verl_video_tools.verl_plugin.export_model CHECKPOINT_DIR OUT_DIR

A checkpoint that already holds whole weights (`checkpoint.save_contents` with `hf_model`) is copied as it is, in the
precision that was trained; any other goes through verl's merger, which writes bfloat16. A LoRA adapter is merged into
the weights, so that reinforcement learning and inference can load the folder like any model. Where LoRA was trained,
verl's whole weights bear PEFT's names, which no reader of models knows, so they are not copied.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.core.files import share_weights, whole_file, write_json
from verl_video_tools.methods import get_method
from verl_video_tools.methods.run_settings import copy_run_settings, read_run, read_run_settings
from verl_video_tools.verl_plugin.checkpoints import STEP_PREFIX, last_checkpoint
from verl_video_tools.verl_plugin.model_files import (
    complete_config,
    complete_processor,
    restore_processor,
    write_model_card,
)


def export_model(checkpoint_dir: Path, out_dir: Path) -> Path:
    """Write the folder; a model that exists there is replaced, once the new one is whole.

    `out_dir` may lie beside the checkpoints of the run, as the recipes have it, but not within one.

    Returns:
        The folder of the checkpoint that was taken.

    Raises:
        UsageError: there is no finished checkpoint, writing `out_dir` would destroy what is no exported model, or the
            weights bear PEFT's names and there are no others.
        subprocess.CalledProcessError: verl's merger failed; its output says why.
    """
    checkpoint = last_checkpoint(checkpoint_dir)
    out_dir = out_dir.resolve()  # behind a link, what it leads to is replaced
    _check_replaceable(checkpoint_dir.resolve(), out_dir)
    run = read_run(checkpoint_dir)
    forget_attention(checkpoint / "huggingface" / "config.json")
    unfinished = out_dir.with_name(f"{out_dir.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    if _has_whole_weights(checkpoint):
        shutil.copytree(checkpoint / "huggingface", unfinished)
    else:
        merger = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
        subprocess.run([*merger, "--local_dir", str(checkpoint), "--target_dir", str(unfinished)], check=True)
        if (unfinished / "lora_adapter").is_dir():
            merge_adapter(unfinished)
    restore_expert_layout(unfinished)
    complete_config(unfinished)
    copy_run_settings(checkpoint_dir, unfinished)
    if "base_model" in run:  # which a run of a former version does not name
        restore_processor(run["base_model"], unfinished)
        with suppress(VideoToolsError):  # no card of methods or fields that this version does not know
            write_model_card(
                unfinished, read_run(unfinished), _training(checkpoint), _most_images(checkpoint_dir, run["methods"])
            )
    complete_processor(unfinished)
    share_weights(unfinished)
    shutil.rmtree(out_dir, ignore_errors=True)
    unfinished.rename(out_dir)
    return checkpoint


def _training(checkpoint: Path) -> str:
    """Kind and steps of the training that wrote a checkpoint."""
    is_actor = checkpoint.name == "actor"
    step = (checkpoint.parent if is_actor else checkpoint).name.removeprefix(STEP_PREFIX)
    return f"{'reinforcement learning' if is_actor else 'fine-tuning'}, {step} steps"


def _most_images(run_folder: Path, methods: Iterable[str]) -> int:
    """Images that a rollout of the run's methods may hold."""
    configured = [get_method(name, **read_run_settings(run_folder, name).fields) for name in methods]
    return max((method.recipe_budget.images for method in configured), default=0)


def _check_replaceable(checkpoint_dir: Path, out_dir: Path) -> None:
    """Raises UsageError where replacing `out_dir`, both paths resolved, would destroy a checkpoint or other things."""
    if checkpoint_dir.is_relative_to(out_dir):
        raise UsageError(f"{out_dir} holds the run itself, which would be replaced; give another folder for the model")
    if out_dir.is_relative_to(checkpoint_dir):
        beside = out_dir.relative_to(checkpoint_dir).parts[0]
        if beside.startswith(STEP_PREFIX):
            raise UsageError(f"{out_dir} is part of the checkpoint {beside}; give a folder outside the checkpoints")
    if out_dir.exists() and not (out_dir.is_dir() and _is_model_or_empty(out_dir)):
        raise UsageError(
            f"{out_dir} exists and is no model (it has no config.json), so it is not replaced; "
            "give another folder, or remove it"
        )


def _is_model_or_empty(folder: Path) -> bool:
    return (folder / "config.json").is_file() or not any(folder.iterdir())


def _has_whole_weights(checkpoint: Path) -> bool:
    """Whether the checkpoint's Hugging Face folder can be copied; else verl's merger has to make one of the shards.

    Raises:
        UsageError: it cannot be copied, and there are no shards.
    """
    files = list((checkpoint / "huggingface").glob("*.safetensors"))
    peft_name = _peft_name(files)
    if peft_name is not None and not list(checkpoint.glob("model_world_size_*.pt")):
        raise UsageError(
            f"{checkpoint / 'huggingface'} holds an adapter that is not merged (weight {peft_name!r}), which loading "
            "would ignore, and the checkpoint has no shards to merge; train with 'model' in checkpoint.save_contents"
        )
    return bool(files) and peft_name is None


def _peft_name(files: Iterable[Path]) -> str | None:
    """A weight that only a model wrapped by PEFT has; None if there is none. Transformers would initialise it anew."""
    from safetensors import safe_open

    for file in files:
        with safe_open(file, framework="pt") as weights:
            for name in sorted(weights.keys()):
                if "lora_" in name or ".base_layer." in name:
                    return name
    return None


def forget_attention(config_file: Path) -> None:
    """Take the implementation of attention out of a model's configuration.

    verl writes there which one the run was given (`override_config.attn_implementation`). Other programs choose their
    own, and may not know it, like a smoke test's replacement for flash-attn: verl's merger could not make the model.
    """
    if not config_file.is_file():
        return
    config = json.loads(config_file.read_text(encoding="utf-8"))
    if config.pop("attn_implementation", None) is not None:
        write_json(config_file, config)


def merge_adapter(folder: Path) -> None:
    """Merge `folder/lora_adapter` into the weights of `folder`, in float32, and store them in their own precision."""
    import torch
    from peft import PeftModel
    from transformers import AutoConfig, AutoModelForImageTextToText

    dtype = AutoConfig.from_pretrained(folder).dtype or torch.bfloat16
    base = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    merged = PeftModel.from_pretrained(base, folder / "lora_adapter").merge_and_unload().to(dtype)
    for stale in [*folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")]:
        stale.unlink()
    merged.save_pretrained(folder)
    shutil.rmtree(folder / "lora_adapter")


def restore_expert_layout(folder: Path) -> None:
    """Transpose the experts of Qwen3-VL's mixture to the layout of released models, which vLLM reads.

    transformers 5.9 holds them transposed, and saves them as it holds them: its conversion turns back only what differs
    from its own shape. It reads either layout.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "qwen3_vl_moe":
        return
    hidden, width = (config["text_config"][name] for name in ("hidden_size", "moe_intermediate_size"))
    held = {"gate_up_proj": (2 * width, hidden), "down_proj": (hidden, width)}
    for file in folder.glob("*.safetensors"):
        weights = load_file(file)
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata()
        for name, weight in weights.items():
            experts, _, projection = name.rpartition(".")
            if experts.endswith(".experts") and tuple(weight.shape[1:]) == held.get(projection):
                weights[name] = weight.transpose(1, 2).contiguous()
        with whole_file(file) as partial:
            save_file(weights, partial, metadata)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint_dir", type=Path, help="trainer.default_local_dir of the run")
    parser.add_argument("out_dir", type=Path, help="folder to write")
    options = parser.parse_args()
    taken = export_model(options.checkpoint_dir, options.out_dir)
    print(f"model of {taken.relative_to(options.checkpoint_dir)}: {options.out_dir}")
