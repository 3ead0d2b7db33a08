"""`video_tools.yaml`: how a run showed videos to its policy and scored it, in the run's folder and in exported models.

Evaluation, chat and replay of such a folder take the fields of the method and the bounds of pixels from there, so that
the model sees what it was trained on. The export takes the base model and the rows from there.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.machine import HUB_NAME, read_chat_template
from verl_video_tools.core.types import Method
from verl_video_tools.methods import method_class, short_names
from verl_video_tools.methods.toolkit.grammar import section_of_template

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
    folder: Path,
    methods: Sequence[Method],
    pixels: Mapping[str, Any],
    judge: Mapping[str, Any] | None,
    base_model: str,
    rows: Sequence[str],
) -> None:
    """Write the file, and copies of the files that it names.

    Args:
        methods: those of the run.
        pixels: `data.mm_processor_kwargs` of the run.
        judge: settings of its judge, which name the variable of a key and never hold one.
        base_model: folder or name of the model that the run starts from.
        rows: its training files.
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
        "base_model": base_model,
        "rows": list(rows),
    }
    OmegaConf.save(OmegaConf.create(content), folder / NAME)


def copy_run_settings(source: Path, target: Path) -> None:
    """From a run's folder to its exported model, which may be published: of the paths in it the last part stays."""
    if run := read_run(source):
        if "base_model" in run:  # and rows; runs of former versions have neither
            run["base_model"] = _public_name(run["base_model"])
            run["rows"] = [_public_name(rows) for rows in run["rows"]]
        OmegaConf.save(OmegaConf.create(run), target / NAME)
        if (source / FILES).is_dir():
            shutil.copytree(source / FILES, target / FILES, dirs_exist_ok=True)


def read_run(folder: Path) -> dict[str, Any]:
    """Everything that the folder's file says, in its own words; empty where there is no file.

    Raises:
        UsageError: the file is damaged.
    """
    path = folder / NAME
    if not path.is_file():
        return {}
    advice = "copy the file anew from where the model comes from"
    try:
        content: Any = OmegaConf.to_container(OmegaConf.load(path))
    except Exception as error:  # YAML's parser and OmegaConf have errors of many kinds, which name the line
        raise UsageError(f"cannot read {path}: {' '.join(str(error).split())}; {advice}") from error
    for section in ("methods", "mm_processor_kwargs"):
        if not isinstance(content, dict) or not isinstance(content.get(section), dict):
            raise UsageError(f"{path} has no fields below {section!r}, which a run writes; {advice}")
    for method, fields_of_method in content["methods"].items():
        if not isinstance(fields_of_method, dict):
            raise UsageError(f"{path} has {fields_of_method!r:.80} in the place of the fields of {method}; {advice}")
    return dict(content)


def read_run_settings(folder: str | Path | None, method: str) -> RunSettings:
    """What the folder's file says of the method; nothing where there is no file, or another method in it."""
    content = {} if folder is None else read_run(Path(folder))
    if folder is None or not content:
        return RunSettings()
    pixels = content["mm_processor_kwargs"]
    bounds = {name: pixels.get(name) for name in ("min_pixels", "max_pixels")}
    fields = content["methods"].get(method, {})
    return RunSettings({name: _resolved_value(Path(folder), value) for name, value in fields.items()}, **bounds)


@cache
def model_tools_section(model: str, custom_template: str | None = None) -> str | None:
    """What a model was trained on as the list of its tools (`section_of_template`); None where its template has none,
    or cannot be read. A process asks once, perhaps over the network."""
    try:
        template = custom_template or read_chat_template(model)
    except (UsageError, OSError, ValueError):  # whatever loads the model says so
        return None
    return None if template is None else section_of_template(template)


def with_run_settings(folder: str | Path | None, method: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run and, before them, those that a user gives; says on standard error which these are.

    Without a run, a method that lists its tools does so as the model in `folder` was trained.
    """
    overrides = short_names(method, overrides)
    if folder is not None and not (Path(folder) / NAME).is_file():
        return {**_fields_of_model(str(folder), method, overrides), **overrides}
    settings = read_run_settings(folder, method)
    if settings.fields:
        changed = {name: value for name, value in overrides.items() if settings.fields.get(name) != value}
        note = f"; changed here: {', '.join(f'{name}={value}' for name, value in changed.items())}" if changed else ""
        print(f"{method} as in {Path(folder or '') / NAME}: {', '.join(settings.fields)}{note}", file=sys.stderr)
    return {**settings.fields, **overrides}


def _fields_of_model(model: str, method: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    lists_tools = any(field.name == "tools_section" for field in fields(method_class(method)))
    if not lists_tools or "tools_section" in overrides:
        return {}
    section = model_tools_section(model)
    if section is None:
        return {}
    print(f"{method}: tools are listed as in the chat template of {model}", file=sys.stderr)
    return {"tools_section": section}


def _public_name(path: str) -> str:
    """A name on the hub as it is, and the last part of any other path, which says nothing of the machine."""
    return path if HUB_NAME.fullmatch(path) else Path(path).name


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
            shutil.copyfile(value, folder / copy)  # without the permissions of the user's file
        return str(copy)
    return value


def _resolved_value(folder: Path, value: Any) -> Any:
    return str(folder / value) if isinstance(value, str) and value.startswith(f"{FILES}/") else value
