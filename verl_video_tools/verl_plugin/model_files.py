"""What lies beside the weights of an exported model: configuration, tokenizer, processor and a model card.

verl saves them as transformers 5 writes them, which version 4 cannot read, and servers and evaluations of 2025 and 2026
often run version 4. So the base model's own files take the place of those that training has not changed, and what only
version 5 reads is written in the form of version 4, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_video_tools import __version__
from verl_video_tools.core.files import write_json
from verl_video_tools.core.machine import HUB_NAME, installed_version

_PROCESSOR_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.json",
    "chat_template.jinja",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
_PARTS = {"image_processor": "preprocessor_config.json", "video_processor": "video_preprocessor_config.json"}
"""Of `processor_config.json`, and the files in which version 4 looks for them."""


def complete_config(folder: Path) -> None:
    """Make `config.json` true and readable by both versions.

    verl writes the word bfloat16 beside weights of any precision, by which readers would round. Version 4 takes the
    rotary embedding from `rope_theta` and `rope_scaling` alone, and version 5 takes these or `rope_parameters`.
    Whether the head is the embedding, version 4 reads in the section of the language model, and version 5 above it:
    version 4 would make a random head.
    """
    from safetensors import safe_open

    with safe_open(next(folder.glob("*.safetensors")), framework="pt") as weights:
        dtype = str(weights.get_tensor(next(iter(weights.keys()))).dtype).removeprefix("torch.")
    config = _read(folder / "config.json")
    for section in [config, *(value for value in config.values() if isinstance(value, dict))]:
        if section is config or "dtype" in section:
            section["dtype"] = dtype
        rope = section.get("rope_parameters") or {}
        if "rope_theta" in rope:
            section["rope_theta"] = rope["rope_theta"]
            section["rope_scaling"] = {name: value for name, value in rope.items() if name != "rope_theta"}
            if "tie_word_embeddings" in config:
                section["tie_word_embeddings"] = config["tie_word_embeddings"]
    write_json(folder / "config.json", config)


def restore_processor(base_model: str, folder: Path) -> None:
    """Put the base model's own files in the place of those that mean the same.

    Args:
        base_model: folder, or a name on the hub, whose files the run has left in the hub's cache. If it is not there
            any more, or has no whole processor, the files that verl has saved stay.
    """
    try:
        base = _folder_of(base_model)
        if base is None or _processor_of(base) != _processor_of(folder):
            return
    except (OSError, ValueError, AttributeError):  # AttributeError: a tokenizer alone
        return
    for name in _PROCESSOR_FILES:
        (folder / name).unlink(missing_ok=True)
        if (base / name).is_file():
            shutil.copyfile(base / name, folder / name)


def complete_processor(folder: Path) -> None:
    """Write what version 4 needs beside the files of version 5."""
    if (file := folder / "tokenizer_config.json").is_file():
        settings = _read(file)
        if isinstance(settings.get("extra_special_tokens"), list):
            settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
        if settings.get("tokenizer_class") == "TokenizersBackend":
            settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        write_json(file, settings)
    if (file := folder / "processor_config.json").is_file():
        settings = _read(file)
        for part, name in _PARTS.items():
            if part in settings and not (folder / name).exists():
                write_json(folder / name, {**settings[part], "processor_class": settings.get("processor_class")})


def write_model_card(folder: Path, run: Mapping[str, Any], training: str, images: int) -> None:
    """Write `README.md`: what the model was trained on, and how to evaluate and serve it.

    Args:
        run: what `video_tools.yaml` of the model says, with base model and rows.
        training: its kind and its steps.
        images: of a request, at most.
    """
    methods = list(run["methods"])
    base = str(run["base_model"])
    header = ["library_name: transformers", "pipeline_tag: video-text-to-text"]
    if HUB_NAME.fullmatch(base):
        header.append(f"base_model: {base}")
    versions = {name: installed_version(name) for name in ("verl", "transformers")}
    software = ", ".join(f"{name} {version}" for name, version in {"verl_video_tools": __version__, **versions}.items())
    card = [
        *("---", *header, "---"),
        f"# {base}, trained with {', '.join(methods)}",
        "",
        "| | |",
        "|---|---|",
        f"| method | {', '.join(f'`{name}`' for name in methods)} |",
        f"| training | {training} |",
        f"| base model | `{base}` |",
        f"| data | {', '.join(f'`{rows}`' for rows in run['rows'])} |",
        f"| software | {software} |",
        "",
        "`video_tools.yaml` holds the method's fields, its prompt and the bounds of pixels. It is part of the model.",
        "",
        "Evaluate the model in this folder, on rows with questions and videos:",
        "",
        "```bash",
        f"vvt eval --method {methods[0]} --serve . --rows ROWS.parquet --out RESULTS",
        "```",
        "",
        "Serve it, and ask about a video:",
        "",
        "```bash",
        f"vllm serve . --generation-config vllm --limit-mm-per-prompt '{{\"image\": {images}}}'",
        f"vvt chat VIDEO.mp4 --method {methods[0]} --base-url http://localhost:8000/v1 --processor .",
        "```",
    ]
    (folder / "README.md").write_text("\n".join(card) + "\n", encoding="utf-8")


def _folder_of(model: str) -> Path | None:
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except (OSError, ValueError):  # not in the cache, or no name
        return None


def _processor_of(folder: Path) -> tuple[Any, ...]:
    """What a processor does to texts and images."""
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    tokenizer = processor.tokenizer
    return (
        processor.to_dict(),
        tokenizer.backend_tokenizer.to_str(),
        tokenizer.special_tokens_map,
        processor.chat_template,
        tokenizer.chat_template,
    )


def _read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
