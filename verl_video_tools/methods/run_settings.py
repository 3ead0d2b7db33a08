"""`video_tools.yaml`: how a run showed videos to its policy and scored it, in the run's folder and in exported models.

Evaluation, chat and replay of such a folder take the fields of the method and the bounds of pixels from there, so that
the model sees what it was trained on.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl_video_tools.core.types import Method

NAME = "video_tools.yaml"
FILES = "video_tools_files"
"""Folder beside it with copies of the files that fields name, such as a prompt."""


@dataclass(frozen=True)
class RunSettings:
    """What a run's file says of one method.

    Attributes:
        fields: of the method's config, those that differ from its defaults.
        min_pixels: lower bound of an image's area in the run, None without one.
        max_pixels: upper bound likewise.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    min_pixels: int | None = None
    max_pixels: int | None = None


def write_run_settings(
    folder: Path, methods: Sequence[Method], pixels: Mapping[str, Any], judge: Mapping[str, Any] | None
) -> None:
    """Write the file, and copies of the files that it names.

    Args:
        methods: those of the run.
        pixels: `data.mm_processor_kwargs` of the run.
        judge: settings of its judge, which name the variable of a key and never hold one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    described = {}
    for method in methods:
        defaults, fields = asdict(type(method)(**_required(method))), asdict(method)
        changed = {
            name: value for name, value in fields.items() if value != defaults[name] or name in _required(method)
        }
        described[method.name] = {
            name: _portable_value(folder, method.name, name, value) for name, value in changed.items()
        }
    content = {
        "methods": described,
        "mm_processor_kwargs": dict(pixels),
        "judge": None if judge is None else dict(judge),
    }
    OmegaConf.save(OmegaConf.create(content), folder / NAME)


def copy_run_settings(source: Path, target: Path) -> None:
    """From a run's folder to its exported model."""
    if (source / NAME).is_file():
        shutil.copy(source / NAME, target)
        if (source / FILES).is_dir():
            shutil.copytree(source / FILES, target / FILES, dirs_exist_ok=True)


def read_run_settings(folder: str | Path | None, method: str) -> RunSettings:
    """What the folder's file says of the method; nothing where there is no file, or another method in it."""
    path = None if folder is None else Path(folder) / NAME
    if path is None or not path.is_file():
        return RunSettings()
    content: Any = OmegaConf.to_container(OmegaConf.load(path))
    pixels = content["mm_processor_kwargs"]
    bounds = {name: pixels.get(name) for name in ("min_pixels", "max_pixels")}
    fields = content["methods"].get(method, {})
    return RunSettings({name: _resolved_value(path.parent, value) for name, value in fields.items()}, **bounds)


def with_run_settings(folder: str | Path | None, method: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run and, before them, those that a user gives; says on standard error which these are."""
    settings = read_run_settings(folder, method)
    if settings.fields:
        changed = {name: value for name, value in overrides.items() if settings.fields.get(name) != value}
        note = f"; changed here: {', '.join(f'{name}={value}' for name, value in changed.items())}" if changed else ""
        print(f"{method} as in {Path(folder or '') / NAME}: {', '.join(settings.fields)}{note}", file=sys.stderr)
    return {**settings.fields, **overrides}


def _required(method: Method) -> dict[str, Any]:
    """Fields without which there are no defaults: a composition's file."""
    return {"file": method.file} if hasattr(method, "file") else {}


def _portable_value(folder: Path, method: str, name: str, value: Any) -> Any:
    """A value as the file holds it: a file is copied beside it and named by its place there."""
    if isinstance(value, tuple):
        return [_portable_value(folder, method, name, part) for part in value]
    if isinstance(value, str) and (name == "file" or name.endswith("_file")) and Path(value).is_file():
        copy = Path(FILES, f"{method}_{name}{Path(value).suffix}")
        (folder / FILES).mkdir(exist_ok=True)
        if Path(value).resolve() != (folder / copy).resolve():
            shutil.copy(value, folder / copy)
        return str(copy)
    return value


def _resolved_value(folder: Path, value: Any) -> Any:
    return str(folder / value) if isinstance(value, str) and value.startswith(f"{FILES}/") else value
